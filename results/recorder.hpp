// Records a run: a row for each step that ends, and an evaluation of the global model whenever the plan asks for one.
#pragma once

#include <deque>
#include <map>
#include <span>

#include "results/run.hpp"
#include "workers/base/process.hpp"
#include "workers/base/units.hpp"
#include "workers/cluster/accounting.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

class StateArchive;

// The mean over rounds of the time at which a round's k-th gradient arrives.
struct MeanArrival {
  double mean_s = 0;        // seconds since the start of the round
  std::int64_t rounds = 0;  // rounds with at least k arrivals
  bool operator==(const MeanArrival&) const = default;
};

// Sorts arrivals by round, then by time, then by rank.
std::vector<GradientArrival> in_order(std::vector<GradientArrival> arrivals);

// Element k - 1 is the mean of the k-th arrivals. `arrivals` must be sorted by in_order.
std::vector<MeanArrival> mean_arrivals(std::span<const GradientArrival> arrivals);

// The text of arrivals.csv, with columns step,k,worker,arrival_s. k counts from 1 in every round.
std::string arrivals_csv(std::span<const GradientArrival> arrivals);

// A row of metrics.csv: the global model at one time of the run.
struct MetricsRow {
  Step step{};
  std::optional<double> epoch;  // passes over the data; none without a data set
  std::int64_t samples = 0;     // number of samples that went into the model
  Time time{};
  std::optional<Evaluation> evaluation;  // none in time-only runs
  double learning_rate = 0;
  Bytes bytes{};  // sent so far by all workers
};

// A row of measurements.csv: one number, measured in addition to the evaluations.
struct Measurement {
  Step step{};
  Time time{};
  std::string quantity;
  double value = 0;
  void serialise(StateArchive& archive);
};

struct Recording {
  std::vector<MetricsRow> metrics{};        // ascending in step and time
  std::vector<StepRow> rows{};              // in the order in which they ended
  std::vector<Measurement> measurements{};  // ascending in step and time
  bool diverged = false;                    // the last row of `metrics` is the first whose model is not finite
  // (P,) parameters of the last model, or of each member of the last ensemble; empty unless they were requested.
  std::vector<std::vector<float>> parameters{};
  std::vector<std::vector<float>> buffers{};  // (buffers,) normalisation statistics of the same models
  void serialise(StateArchive& archive);
};

// Ends the recording at its first model that is not finite. When the run notices that model depends on the speed of the
// evaluation, so no later row may be reported.
void cut_after_divergence(Recording& recording);

// Whole files with a header line; column names contain the units. Numbers have the shortest form from which the same
// value is read. A cell is empty if its value does not exist for this run.
std::string metrics_csv(std::span<const MetricsRow> rows);
std::string steps_csv(std::span<const StepRow> rows);
std::string measurements_csv(std::span<const Measurement> rows);

// Thrown to end a run whose model is not finite.
struct Diverged : RunFailure {
  explicit Diverged(Step after) : RunFailure("the model is not finite after step " + std::to_string(after.value())) {}
};

// The effect of dropping on the data: for each class and length, how many samples went into the model and how many
// would have without dropping.
struct KeptSamples {
  struct Kinds {
    std::vector<std::int64_t> kept;
    // Samples in all workers' micro-batches of the run's steps. If workers take the data in turn
    // (Traits::takes_data_in_turn): samples in each worker's first n micro-batches, n being the number that it kept or
    // dropped. Empty if other processes have the accounts.
    std::vector<std::int64_t> offered;
    bool operator==(const Kinds&) const = default;
  };
  Kinds by_class;
  Kinds by_length;                    // by length bin; empty if samples have no length
  std::vector<std::int32_t> longest;  // [bin]: largest length in the bin
  // [bin]: mean loss and accuracy of the last model on the bin's test samples; NaN for an empty bin. Empty without a
  // model.
  std::vector<double> test_loss{};
  std::vector<double> test_accuracy{};
  // At the last model, from the run's last steps; without a value if nothing was dropped, or without a model.
  std::optional<GradientBias> gradient_bias{};
  bool operator==(const KeptSamples&) const = default;
};

// Collects the workers' own models at multiples of an interval of the cluster's clock. Each worker contributes the
// model after its first step that ends at or after the multiple. Multiples before the slowest worker's model are
// skipped. Once a worker has ended and cannot contribute, nothing more is collected, because the other workers' models
// do not represent all workers.
class ModelsByTime {
 public:
  ModelsByTime(int workers, Duration every) : every_(every), workers_(workers), of_(workers) {}

  // Whether the worker's model at this time is its first one at or after some multiple.
  bool wants(Rank worker, Time now) const { return !is_over_ && multiple_of(now) > of_[worker].reached; }
  void add(WorkerModel&& model);  // requires wants()
  void end(Rank worker) { of_[worker].has_ended = true; }

  // Removes and returns the next model of each worker; nullopt unless every worker has one.
  std::optional<std::map<Rank, WorkerModel>> take_first();
  // Removes and returns all remaining models, worker by worker.
  std::vector<WorkerModel> take_all();

 private:
  struct OfWorker {
    std::deque<WorkerModel> models{};  // ascending in time
    std::int64_t reached = 0;          // number of the last multiple at or before the newest model
    bool has_ended = false;
  };
  std::int64_t multiple_of(Time time) const { return time.time_since_epoch() / every_; }

  Duration every_;
  int workers_;
  ByRank<OfWorker> of_;
  std::int64_t next_ = 1;  // number of the next multiple
  bool is_over_ = false;
};

// The progress of a run, for a progress line.
struct RunPosition {
  struct Point {
    Step step{};
    Time time{};
    std::int64_t samples = 0;
    Bytes bytes{};
  };
  Point reached;   // by the cluster, on its clock
  Point computed;  // by the arithmetic, which is finished at least up to the latest evaluated model
  std::int64_t synchronisations = 0;
  std::optional<Evaluation> latest;  // result of the latest evaluated model
};

class Recorder : public RunObserver {
 public:
  struct Options {
    EvaluationPlan plan;
    MeasurementPlan measurements{};
    int workers = 1;  // number of workers whose own models are combined, if they have such models
    // True: models are kept and evaluated in finish(), for runs on a wall clock, which evaluations would slow down.
    // False: the executor evaluates the models during the run.
    bool defer = false;
    bool keep_parameters = false;  // whether finish() reads the parameters of the last model
    // Called after each round, each publication and each evaluation that finish() awaits; by one thread at a time. May
    // be null.
    std::function<void()> on_change;
  };

  Recorder(Options options, Training& training);
  ~Recorder() override;

  // Records the initial model of all workers as step 0. `initial`: null in time-only runs.
  void begin(const ModelStatePtr& initial, double learning_rate);

  void on_row(const StepRow& round) override;

  // Throws Diverged once an evaluation has shown that a model is not finite. If processes divide the work, all of them
  // throw at the same publication, two evaluations after that model's.
  void on_publish(const Publication& publication) override;
  // Sets the learning rate in the existing row of step 0.
  void on_first_rate(double learning_rate) override;

  bool wants_step_gradient(Step step) const override;
  void on_step_gradient(Step step, Time time, const Gradient& gradient) override;
  bool wants_worker_models(Step step) const override;
  void on_worker_model(WorkerModel&& model) override;
  bool wants_individual_models(Step step) const override;
  void on_individual_model(WorkerModel&& model) override;
  void on_individual_models_end(Rank worker) override;

  // For runs with Options::defer, before finish(). take_individual_models() removes and returns this process's models.
  // add() inserts a row that was evaluated from the models of all processes.
  std::vector<WorkerModel> take_individual_models();
  void add(const MetricsRow& row, std::optional<double> consensus_distance);
  MetricsRow row_of(const Publication& publication) const;

  // Records the last publication and waits for all evaluations. Rethrows an exception of the arithmetic.
  void finish();

  // Results of evaluations, for checkpoints. evaluated() requires that all requested evaluations have ended. restore()
  // sets these results in a resumed run. It returns false if that run has requested another number of evaluations.
  struct Evaluated {
    std::vector<Evaluation> entries{};  // in the order of the requests
    std::vector<Measurement> measurements{};
    void serialise(StateArchive& archive);
  };
  Evaluated evaluated() const;
  bool restore(const Evaluated& before);
  bool has_diverged() const;

  // Everything that was recorded so far, except rows that are not evaluated yet.
  Recording recording() const;
  RunPosition position() const;

 private:
  class ModelMeasurements;
  class ModelsByStep;
  struct Shared;

  struct Asked {
    MetricsRow row;
    std::vector<ModelStatePtr> models{};      // one model, or the members of an ensemble; empty in time-only runs
    std::vector<MicroBatch> recalibration{};  // data to recalibrate normalisation statistics before the evaluation
    ModelsOfWorkers own{};                    // models whose distance from their mean is measured, if there are any
  };

  void add_publication(const Publication& publication);
  void add_individual_models();
  bool due(Step step, Time time) const;
  void record(Asked asked);
  void evaluate(std::size_t index);
  std::vector<std::shared_ptr<Task>> evaluate_each(const std::vector<WeightedState>& models, std::size_t index);
  void throw_if_diverged();

  Options options_;
  Training& training_;
  std::shared_ptr<Shared> shared_;  // with running evaluations
  // If processes divide the work: the tasks of each row, until throw_if_diverged() has waited for them.
  std::vector<std::vector<std::shared_ptr<Task>>> tasks_;
  std::size_t checked_ = 0;  // number of rows whose tasks throw_if_diverged() has waited for
  std::unique_ptr<ModelMeasurements> measurements_;
  std::unique_ptr<ModelsByStep> individual_models_;
  std::optional<ModelsByTime> individual_models_by_time_;  // used instead if the plan has every_duration
  std::vector<StepRow> rows_;
  std::optional<Asked> last_;                   // the newest publication if it is not recorded yet
  std::vector<ModelStatePtr> last_models_;      // models of the newest publication, for keep_parameters
  std::vector<MicroBatch> last_recalibration_;  // data to recalibrate last_models_
  std::vector<std::vector<float>> parameters_;  // parameters of last_models_
  std::vector<std::vector<float>> buffers_;     // buffers of last_models_
  Step newest_step_{-1};                        // the largest step of all publications
  Time newest_time_{};
  Step recorded_step_{-1};
  Time recorded_time_{};
  RunPosition position_;
};

}  // namespace syncopate
