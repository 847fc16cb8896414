// A run's evaluations: rows of metrics.csv in the order in which they were asked for, each filled by the executor once
// its models have been evaluated; and measurements, which come in the same way.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "results/rows/recording.hpp"
#include "workers/cluster/run_observer.hpp"
#include "workers/process/run_failure.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

// The model is no longer finite; going on would cost time and show nothing.
struct Diverged : RunFailure {
  using RunFailure::RunFailure;
};

// After own steps, before the workers mix what they have; and of the models that are evaluated, often after that.
inline constexpr const char* consensus_distance_name = "consensus_distance";
inline constexpr const char* evaluated_consensus_distance_name = "evaluated_consensus_distance";

// The part that an evaluation reads. Moments are not held, so that the optimizer may go on in place.
ModelStatePtr without_moments(const ModelStatePtr& state);

class EvaluatedRows {
 public:
  // What of a publication is kept until its evaluation is asked for.
  struct Asked {
    MetricsRow row;
    std::vector<ModelStatePtr> models{};      // the members of an ensemble, or one; none in time-only runs
    std::vector<MicroBatch> recalibration{};  // of each model before it, where there are any
    ModelsOfWorkers own{};                    // if not empty: how far they are apart is measured
  };

  // `training` outlives it. Evaluations may outlive it, since one may end after a failed run is gone.
  explicit EvaluatedRows(Training& training);

  // By one thread at a time. The last one so far; its index.
  std::size_t add(Asked asked);
  // One that has been evaluated, before those of later steps, none of which has been evaluated yet.
  void insert(const MetricsRow& row, std::optional<double> consensus_distance);
  void set_first_rate(double learning_rate);
  // Asks for the evaluation, unless that was done before.
  void evaluate(std::size_t index);
  void evaluate_all();

  // Throw Diverged where one of those that have ended has shown that the model is not finite; the second waits for all
  // but the last, so that processes that divide the work end at the same one, however fast each is.
  void check() const;
  void check_earlier();

  // Takes measurements, from any thread.
  std::function<void(Measurement)> sink() const;
  // Called after each evaluation, by one thread at a time; may be null.
  void set_listener(std::function<void()> listener);

  bool has_diverged() const;
  // The newest model that has been evaluated.
  std::optional<MetricsRow> latest() const;
  // Rows whose evaluation is there, and all measurements, by step and time.
  void write_to(Recording& recording) const;

  // What they have come to so far: what a checkpoint needs, once all have ended that were asked for. And what they had
  // come to, for a run that is taken up and has asked for as many; false if it has not.
  struct Ended {
    std::vector<Evaluation> entries{};  // in the order in which they were asked for
    std::vector<Measurement> measurements{};
  };
  Ended ended() const;
  bool take_up(const Ended& before);

 private:
  struct Shared;  // with the evaluations under way

  void evaluate_each(const std::vector<WeightedState>& models, std::size_t index);
  void keep(std::vector<std::shared_ptr<Task>> tasks);

  Training& training_;
  std::shared_ptr<Shared> shared_;
  // Where work is divided: of each row, until their end has been waited for; of how many it has.
  std::vector<std::vector<std::shared_ptr<Task>>> tasks_;
  std::size_t checked_ = 0;
};

}  // namespace syncopate
