// Listens to a run and turns it into rows: those of steps as they come, and an evaluation of the global
// model each time the plan asks for one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "results/rows/recording.hpp"
#include "results/run/run.hpp"
#include "workers/cluster/run_observer.hpp"
#include "workers/process/run_failure.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

// The model is no longer finite; going on would cost time and show nothing.
struct Diverged : RunFailure {
  using RunFailure::RunFailure;
};

// Where a run is, for a progress line.
struct RunPosition {
  struct Point {
    Step step{};
    Time time{};
    std::int64_t samples = 0;
    Bytes bytes{};
  };
  Point reached;   // by the cluster's clock
  Point computed;  // how far the arithmetic has come: at least up to the latest model that has been evaluated
  std::int64_t synchronisations = 0;
  std::optional<Evaluation> latest;  // of the latest model that has been evaluated
};

class Recorder : public RunObserver {
 public:
  struct Options {
    EvaluationPlan plan;
    // True: states are kept, and evaluated by finish(). For runs on a wall clock, which an evaluation
    // in between would slow down. False: evaluated by the executor while the run goes on.
    bool defer = false;
    bool keep_parameters = false;  // finish() reads those of the last model
    // After each round and publication, and after each evaluation that finish() waits for; may be null.
    // Called by one thread at a time.
    std::function<void()> on_change;
  };

  // `training` outlives the recorder. Evaluations may outlive it.
  Recorder(Options options, Training& training);

  // Records the model that all workers start from (null in time-only runs) as step 0.
  void begin(const ModelStatePtr& initial, double learning_rate);

  void on_row(const StepRow& round) override;

  // Throws Diverged once an evaluation has shown that the model is not finite.
  void on_publish(const Publication& publication) override;

  // Records the last publication, and waits for all evaluations. Throws what the arithmetic threw.
  void finish();

  // What has been recorded so far; rows whose evaluation is not there are left out.
  Recording recording() const;
  RunPosition position() const;

 private:
  struct Entry {
    MetricsRow row;
    std::vector<ModelStatePtr> models;      // until their evaluation is asked for; none in time-only runs
    std::vector<MicroBatch> recalibration;  // of each model before it, where there are any
    bool done = false;
  };
  struct Entries;  // shared with the evaluations under way

  MetricsRow row_of(const Publication& publication) const;
  bool due(Step step) const;
  std::optional<double> epoch(Step step) const;
  void record(Entry entry);
  void evaluate(std::size_t index);
  void set_listener(std::function<void()> listener);

  Options options_;
  Training& training_;
  std::shared_ptr<Entries> entries_;
  std::vector<StepRow> rows_;
  std::optional<Entry> last_;                   // the newest publication, if it is not recorded yet
  std::vector<ModelStatePtr> last_models_;      // the newest publication's, if their parameters are asked for
  std::vector<std::vector<float>> parameters_;  // of these
  Step recorded_step_{-1};
  Time recorded_time_{};
  RunPosition position_;
};

}  // namespace syncopate
