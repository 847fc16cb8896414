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

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/local_sgd/sync_period.hpp"
#include "algorithms/method/algorithm.hpp"
#include "workers/config/settings.hpp"
#include "workers/training/learning_rate.hpp"
#include "workers/training/objective.hpp"
#include "workers/worker.hpp"

namespace syncopate {

// One round of local steps, for methods that need to know the rate that it was taken at.
// Takes the rule's next round on this worker alone, less of it where the budget or its own data end. The mean learning
// rate of its steps; 0 of none.
double take_round(Worker& worker, const SyncPeriod& period);

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

// What becomes of the rest of a training's state when models are averaged: optimizer moments, BatchNorm statistics.
// Source:  reference code of Gu et al. 2024 (hmgxr128/QSR): moments stay with their workers unless chosen;
//          statistics are not averaged, but estimated on 128 micro-batches before each evaluation.
//          McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data": weights by
//          samples (FedAvg).
// Differs: by default statistics are averaged along with the parameters; the estimate takes the micro-batches of
//          the steps to come, all at the published model, and costs no time.
// How workers' models count in an average of all: by how many training samples each has, as in FedAvg (McMahan et al.
// 2017), or alike.
enum class ModelWeights { equal, samples };

struct StatePolicies {
  AveragePolicy average{};              // at each synchronisation
  int recalibration_micro_batches = 0;  // on which BatchNorm statistics are estimated anew; 0: they are as they are
  ModelWeights weights = ModelWeights::equal;

  bool count_alike() const { return weights == ModelWeights::equal; }
  // Averaging::weight of each worker's model.
  double model_weight() const { return count_alike() ? 1 : by_samples; }
};

// Reads
//   moments = "keep" | "average" | "reset"   of all moments (default: keep),
//   first_moment, second_moment              of one (default: as `moments`; SGD's momentum is the first),
//   buffers = "average" | "keep" | "reset" | "recalibrate"   (default: average),
//   recalibration_micro_batches              with "recalibrate" (default: 128).
StatePolicies read_state_policies(Settings& settings);
// The keys of the buffers alone, for methods that average once.
void read_buffer_policy(Settings& settings, StatePolicies& policies);

// Reads weights = "equal" | "samples" (default: equal). By samples only where the data are divided among the
// workers, and averages are not compressed.
void read_model_weights(Settings& settings, bool divides_data, StatePolicies& policies);
// The fault of `weights` alone, where a method has read them.
void check_model_weights(Settings& settings, bool divides_data, const StatePolicies& policies);

// Publishes the participant's model, or the ensemble, with what is to be estimated anew.
void publish(Participant& participant, const StatePolicies& policies, std::vector<ModelStatePtr> ensemble = {});
// The same of a model that is not the participant's own.
void publish(Participant& participant, const StatePolicies& policies, const ModelStatePtr& model,
             std::vector<ModelStatePtr> ensemble = {});

// Fragments: the parts of a model that are synchronised apart from each other, each at its own time of a round.
// Source:  Douillard et al. 2025, "Streaming DiLoCo with overlapping communication: Towards a Distributed Free Lunch".
// Shapes:  fragment p of P: the parameters from floor(p d / P) to floor((p + 1) d / P) of the flat vector of d, one at
//          least. BatchNorm statistics go with the first.   Units: offsets in local steps, 1 to H.
// Cost:    a collective on a fragment moves 1 / P of the model.
// Differs: the papers' fragments are whole layers, three transformer blocks each, side by side or strided over the
//          depth. Here they are equal slices, whose borders may lie within a tensor, so that each takes the same time;
//          the flat vector has the tensors that weight decay acts on first. Under a plain mean
//          all parameters are averaged alike, so that where the borders lie changes when a parameter is synchronised,
//          and nothing else. The merge rule `rda` goes by tensors: of one that a border cuts each part has a length
//          and a direction of its own, and what is merged depends on the borders. So does a compression, which
//          takes each fragment by itself.
// Checks:  the slices cover the vector once; offsets are p H / P where P divides H, and never further apart than
//          ceil(H / P).
class Fragments {
 public:
  // `written` says where the number stands in a file, for what is found out with the model.
  explicit Fragments(int count, std::string written = {}) : count_(count), written_(std::move(written)) {}

  int count() const { return count_; }
  Slice slice(int fragment) const { return {.index = fragment, .count = count_}; }
  // After how many steps of a round of so many the fragment's turn is: ceil((p + 1) H / P), so that the last one's is
  // at the end. With more fragments than steps several have the same.
  Step offset(int fragment, Step round) const;
  // Fails where the model has fewer parameters than fragments.
  void check(const Participant& participant) const;

 private:
  int count_;
  std::string written_;
};

// Reads `fragments`, which must be given if there is no usual number of them. `parameters`: the model's, if known.
Fragments read_fragments(Settings& settings, std::optional<int> usual = {},
                         std::optional<std::int64_t> parameters = {});

}  // namespace syncopate
