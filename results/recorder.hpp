// Listens to a run and turns it into rows: those of steps as they come, and an evaluation of the global
// model each time the plan asks for one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "results/run.hpp"
#include "workers/base/process.hpp"
#include "workers/base/units.hpp"
#include "workers/cluster/accounting.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

// When the k-th gradient of each round arrived: the file arrivals.csv, and means over the rounds.
// The k-th arrivals of the rounds.
struct MeanArrival {
  double mean_s = 0;        // since the round's begin
  std::int64_t rounds = 0;  // that had as many
  bool operator==(const MeanArrival&) const = default;
};

// By rounds, as they began, and within a round as they arrived; of what came at once, by rank.
std::vector<GradientArrival> in_order(std::vector<GradientArrival> arrivals);

// [k - 1]; of arrivals that are in order.
std::vector<MeanArrival> mean_arrivals(std::span<const GradientArrival> arrivals);

// The same as a table: step,k,worker,arrival_s; k counts from 1 in every round.
std::string arrivals_csv(std::span<const GradientArrival> arrivals);

// What a run leaves behind as rows: the tables metrics.csv and steps.csv.
// A row of metrics.csv: the global model at one point of the run.
struct MetricsRow {
  Step step{};
  std::optional<double> epoch;  // passes over the data; none without a data set
  std::int64_t samples = 0;     // that went into the model
  Time time{};
  std::optional<Evaluation> evaluation;  // none in time-only runs
  double learning_rate = 0;
  Bytes bytes{};  // sent so far, over all workers
};

// A row of measurements.csv: what is measured beside the evaluations, a number each.
struct Measurement {
  Step step{};
  Time time{};
  std::string quantity;
  double value = 0;
};

struct Recording {
  std::vector<MetricsRow> metrics{};        // ascending in step and time
  std::vector<StepRow> rows{};              // in the order in which they ended
  std::vector<Measurement> measurements{};  // ascending in step and time
  bool diverged = false;                    // the last row of `metrics` is the first one that is not finite
  // (P,) of the last model, or of each member of the last ensemble; empty unless asked for.
  std::vector<std::vector<float>> parameters{};
  std::vector<std::vector<float>> buffers{};  // of these, where the model has any: its normalisation statistics
};

// Ends the recording at its first model that is not finite. How far a run goes on after it depends
// on when the evaluation is ready, so nothing beyond may be reported.
void cut_after_divergence(Recording& recording);

// Whole files, with a header line; units stand in the column names. Numbers have the shortest form
// that reads back to the same value, an empty cell is a value that does not exist for this run.
std::string metrics_csv(std::span<const MetricsRow> rows);
std::string steps_csv(std::span<const StepRow> rows);
std::string measurements_csv(std::span<const Measurement> rows);

// A run's evaluations: rows of metrics.csv in the order in which they were asked for, each filled by the executor once
// its models have been evaluated; and measurements, which come in the same way.
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

// What dropping has done to the data: how many samples of each class, and of each length, went into the model, and how
// many would have without dropping.
struct KeptSamples {
  struct Kinds {
    std::vector<std::int64_t> kept;
    // In all workers' micro-batches of the steps that the run has made; of methods that take the data in turn
    // (Traits::takes_data_in_turn) in each worker's first ones, as many as were kept or dropped. Empty where the
    // accounts are of others.
    std::vector<std::int64_t> offered;
    bool operator==(const Kinds&) const = default;
  };
  Kinds by_class;
  Kinds by_length;                    // by bin; empty where samples have no length
  std::vector<std::int32_t> longest;  // [bin]
  // [bin]: of the last model, the mean loss of the bin's test samples, and the share of their answers that are right;
  // not a number where it has none; empty: no model.
  std::vector<double> test_loss{};
  std::vector<double> test_accuracy{};
  bool operator==(const KeptSamples&) const = default;
};

// Models that each worker has of its own, put together step by step: what they are after so many steps is known once
// every worker has said so, or has ended.
class ModelsByStep {
 public:
  explicit ModelsByStep(int workers) : workers_(workers) {}

  void add(OwnModel&& model);
  void end(Rank worker) { ended_.insert(worker); }

  // The models of the earliest step, by worker, if no further ones will come to it (`at_the_end`: whatever has come).
  std::optional<std::map<Rank, OwnModel>> take_first(bool at_the_end = false);

 private:
  int workers_;
  std::set<Rank> ended_;
  std::map<Step, std::map<Rank, OwnModel>> open_;
};

// As they are evaluated: after the most steps, at the time of the last, with what it says; the models' mean is not
// filled in. In time-only runs there are none.
Publication as_publication(const std::map<Rank, OwnModel>& models);

// What is measured of models and gradients along a run, beside the evaluations, as often as the plan says.
class ModelMeasurements {
 public:
  using Sink = std::function<void(Measurement)>;  // called by any thread, also after this object is gone

  // `training` outlives it. `defer`: published models are kept, and measured by finish().
  ModelMeasurements(const MeasurementPlan& plan, int workers, bool defer, Training& training, Sink sink);

  // The first publication, and the first one at or after each multiple of the plan's steps. An ensemble has no model.
  void publish(const Publication& publication);
  // Of worker 0 and a server the one steps that the other does not; whoever comes first to a step is told of.
  bool wants_step_gradient(Step step) const;
  void add_step_gradient(Step step, Time time, const Gradient& gradient);
  // Models that workers have of their own, whose distance from their mean is measured once all of a step are there.
  bool wants_worker_models(Step step) const;
  void add_worker_model(OwnModel&& model);
  // That worker has none any more.
  void end(Rank worker) { worker_models_.end(worker); }
  void take_in_worker_models();
  void finish();

 private:
  void measure(Step step, Time time, const ModelStatePtr& model);
  bool is_due(Step step) const { return step.value() % plan_.every_steps.value() == 0; }

  MeasurementPlan plan_;
  bool defer_;
  Training& training_;
  Sink sink_;
  ModelsByStep worker_models_;
  Step measured_step_{-1};
  Step measured_gradient_{};
  std::vector<std::tuple<Step, Time, ModelStatePtr>> to_be_measured_{};  // deferred
};

// Models that each worker has of its own, put together at multiples of an interval of the cluster's clock: of each
// worker the model after its first step that ends at or after the multiple. Whoever is slow decides when all have one;
// multiples up to that time are passed with it. Once a worker has ended without one there are no more: those of the
// others alone would not stand for all.
class ModelsByTime {
 public:
  ModelsByTime(int workers, Duration every) : every_(every), workers_(workers), of_(workers) {}

  // Whether a model that this worker has now is its first at or after some multiple.
  bool wants(Rank worker, Time now) const { return !is_over_ && multiple_of(now) > of_[worker].reached; }
  void add(OwnModel&& model);  // one that is wanted
  void end(Rank worker) { of_[worker].has_ended = true; }

  // The next ones by worker, if all have one.
  std::optional<std::map<Rank, OwnModel>> take_first();
  // All that are not yet passed, worker by worker.
  std::vector<OwnModel> take_all();

 private:
  struct OfWorker {
    std::deque<OwnModel> models{};  // ascending in time
    std::int64_t reached = 0;       // the multiple at or before the newest
    bool has_ended = false;
  };
  std::int64_t multiple_of(Time time) const { return time.time_since_epoch() / every_; }

  Duration every_;
  int workers_;
  ByRank<OfWorker> of_;
  std::int64_t next_ = 1;  // multiple
  bool is_over_ = false;
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

// A recording as bytes (CBOR), to move it from the process that recorded to the one that writes.
std::vector<std::uint8_t> to_bytes(const Recording& recording);

// Throws std::runtime_error if the bytes are not those of a recording.
Recording recording_from_bytes(std::span<const std::uint8_t> bytes);

}  // namespace syncopate
