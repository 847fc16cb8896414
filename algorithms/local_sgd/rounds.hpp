// How workers train alone where that is otherwise than when they trained together: another batch, an order of the data
// of each worker's own, a learning rate of its own.
// Source:  Gupta et al. 2020, "Stochastic Weight Averaging in Parallel": SWAP's second phase.
// Units:   steps are optimizer steps; a worker's step has `micro_batches` micro-batches.
// Cost:    a micro-batch takes the time that it takes in the first phase.
// Differs: the size of a micro-batch stays what it is; the learning rate goes by steps since the phase began, and is
//          then the worker's in all that goes by it: what is published, and how long a round is.
// Checks:  the batch, order and rate of the first phase change nothing, bit for bit; each worker's pass has all samples
//          once, in an order of its own; rates against the formula.
#pragma once

#include <optional>

#include "algorithms/method/algorithm.hpp"
#include "workers/training/learning_rate.hpp"

namespace syncopate {

struct LocalPhase {
  // The order in which a worker takes its samples.
  enum class Sampling {
    shards,  // its part of each epoch, as before
    own,     // all, in orders of its own
  };

  std::optional<int> micro_batches{};  // of a worker's step; none: as before
  Sampling sampling = Sampling::shards;
  Step steps_per_epoch{};                                // of all workers together; with Sampling::own
  Step first_step{};                                     // of the data, at the run's beginning; likewise
  std::optional<LearningRate::Options> learning_rate{};  // without its total steps; none: the schedule goes on

  // Of a phase of so many steps; none: the schedule goes on, or there is no step.
  std::optional<LearningRate> learning_rate_over(Step steps) const;
};

// A worker's phase: constructed where it begins.
class LocalTraining {
 public:
  LocalTraining(const LocalPhase& phase, Worker& worker);

  // As take_local_steps.
  void take_steps(Step count);

 private:
  Gradient compute_step();
  MicroBatch next_samples();

  const LocalPhase& phase_;
  Worker& worker_;
  Step begun_;
  std::int64_t taken_ = 0;  // micro-batches
};

// The table `local_phase`; as before where there is none.
LocalPhase read_local_phase(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
