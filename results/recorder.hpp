// Listens to a run and turns it into rows: those of steps as they come, and an evaluation of the global
// model each time the plan asks for one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "results/rows/evaluated_rows.hpp"
#include "results/rows/model_measurements.hpp"
#include "results/rows/models_by_time.hpp"
#include "results/rows/own_models.hpp"
#include "results/rows/recording.hpp"
#include "results/run/run.hpp"
#include "workers/cluster/run_observer.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

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
    MeasurementPlan measurements{};
    int workers = 1;  // whose own models are put together, where they have some
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

  // Throws Diverged once an evaluation has shown that the model is not finite; where processes divide the work, when
  // the next model but one is evaluated, on all the same.
  void on_publish(const Publication& publication) override;
  // Of the row of step 0, which stands already.
  void on_first_rate(double learning_rate) override;

  bool wants_step_gradient(Step step) const override;
  void on_step_gradient(Step step, Time time, const Gradient& gradient) override;
  bool wants_worker_models(Step step) const override;
  void on_worker_model(OwnModel&& model) override;
  bool wants_own_models(Step step) const override;
  void on_own_model(OwnModel&& model) override;
  void on_own_models_end(Rank worker) override;
  // Deferred, before finish(): those of this process in their order; and what was made of those of all.
  std::vector<OwnModel> take_own_models();
  void add(MetricsRow row, std::optional<double> consensus_distance);
  MetricsRow row_of(const Publication& publication) const;

  // Records the last publication, and waits for all evaluations. Throws what the arithmetic threw.
  void finish();

  // For checkpoints, once all evaluations have ended that were asked for (EvaluatedRows).
  using Evaluated = EvaluatedRows::Ended;
  Evaluated evaluated() const { return evaluated_.ended(); }
  bool take_up(const Evaluated& before) { return evaluated_.take_up(before); }
  bool has_diverged() const { return evaluated_.has_diverged(); }

  // What has been recorded so far; rows whose evaluation is not there are left out.
  Recording recording() const;
  RunPosition position() const;

 private:
  void take_in(const Publication& publication);
  void take_in_own_models();
  bool due(Step step, Time time) const;
  std::optional<std::map<Rank, OwnModel>> take_first_own_models();
  std::optional<double> epoch(double steps) const;
  void record(EvaluatedRows::Asked asked);

  Options options_;
  Training& training_;
  EvaluatedRows evaluated_;
  ModelMeasurements measurements_;
  ModelsByStep own_models_;
  std::optional<ModelsByTime> own_models_by_time_;  // instead, where the plan goes by time
  std::vector<StepRow> rows_;
  std::optional<EvaluatedRows::Asked> last_;    // the newest publication, if it is not recorded yet
  std::vector<ModelStatePtr> last_models_;      // the newest publication's, if their parameters are asked for
  std::vector<MicroBatch> last_recalibration_;  // of these
  std::vector<std::vector<float>> parameters_;  // of these
  std::vector<std::vector<float>> buffers_;     // likewise
  Step newest_step_{-1};                        // of all publications
  Time newest_time_{};
  Step recorded_step_{-1};
  Time recorded_time_{};
  RunPosition position_;
};

}  // namespace syncopate
