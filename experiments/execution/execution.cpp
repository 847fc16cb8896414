#include "experiments/execution/execution.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <numeric>
#include <span>
#include <thread>

#include "experiments/execution/checkpointing.hpp"
#include "experiments/execution/ranks.hpp"
#include "results/build_info.hpp"
#include "workers/base/arrays.hpp"
#include "workers/base/files.hpp"
#include "workers/base/machine.hpp"
#include "workers/base/process.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/data/partition.hpp"
#include "workers/models/models.hpp"
#include "workers/models/torch_library.hpp"
#include "workers/mpi/mpi_cluster.hpp"
#include "workers/mpi/mpi_collectives.hpp"
#include "workers/simulated/simulated_cluster.hpp"
#include "workers/training/checkpoint_log.hpp"

namespace syncopate {

namespace {

constexpr AveragePolicy parameters_and_buffers{.buffers = StatePolicy::average};

// Evaluates the workers' models under MPI if each worker has its own (gossip). This happens after the run, so it takes
// no time on the clock. The models are those after the evaluated steps, or at the evaluated times. Rank `root`
// evaluates their mean, or each rank evaluates its own model. The recorder of rank `root` gets the rows. Does nothing
// if workers have no models of their own. Collective; call it before recorders finish. Throws Interrupted.
class IndividualModelsOfRanks {
 public:
  IndividualModelsOfRanks(const MpiSession& session, int root, Training& training, Recorder& recorder)
      : session_(session),
        is_root_(session.rank() == root),
        training_(training),
        recorder_(recorder),
        own_(recorder.take_individual_models()) {}

  void combine(const EvaluationPlan& plan) {
    if (plan.every_duration > Duration{})
      by_time(plan.every_duration);
    else
      by_steps();
  }

 private:
  static constexpr Step none{std::numeric_limits<Step::Rep>::max()};

  void by_steps() {
    for (Step next = next_of_all(Step{-1}); next != none; next = next_of_all(next)) {
      const WorkerModel* const own = first_own([next](const WorkerModel& model) { return model.step >= next; });
      put_together(own && own->step == next ? own : nullptr, next);
    }
  }

  // Selects the same models as ModelsByTime does on the simulated cluster.
  void by_time(Duration every) {
    Step last{-1};
    for (std::int64_t multiple = 1;;) {
      const Time due{multiple * every};
      const WorkerModel* const own = first_own([due](const WorkerModel& model) { return model.time >= due; });
      if (reduced(session_, own ? 1 : 0, MPI_MIN) == 0 || !own) return;
      const double latest_ns = reduced(session_, static_cast<double>(own->time.time_since_epoch().count()), MPI_MAX);
      const Step step = static_cast<Step::Rep>(reduced(session_, static_cast<double>(own->step.value()), MPI_MAX));
      if (step > last) put_together(own, step);
      last = step;
      multiple = Duration{static_cast<Duration::rep>(latest_ns)} / every + 1;
    }
  }

  template <typename Holds>
  const WorkerModel* first_own(Holds holds) const {
    const auto first = std::ranges::find_if(own_, holds);
    return first == own_.end() ? nullptr : &*first;
  }

  Step next_of_all(Step last) const {
    const WorkerModel* const own = first_own([last](const WorkerModel& model) { return model.step > last; });
    const auto next = static_cast<double>((own ? own->step : none).value());
    const double least = reduced(session_, next, MPI_MIN);
    return least >= static_cast<double>(none.value()) ? none : Step{static_cast<Step::Rep>(least)};
  }

  // `own`: this rank's model; null if it has none.
  void put_together(const WorkerModel* own, Step step) {
    MetricsRow row = recorder_.row_of(publication_of(own, step));
    std::optional<double> distance;
    if (!training_.time_only()) {
      const double weights = reduced(session_, own ? own->weight : 0, MPI_SUM);
      std::vector<double> mean(training_.averaged_size(parameters_and_buffers));
      std::vector<float> values(mean.size());
      if (own) training_.write_averaged(own->model, parameters_and_buffers, values.data());
      for (std::size_t i = 0; own && i < mean.size(); ++i) mean[i] = own->weight / weights * values[i];
      reduced(session_, mean, MPI_SUM);
      const double count = reduced(session_, own ? 1 : 0, MPI_SUM);
      double squares = 0;
      for (std::size_t i = 0; own && i < training_.objective().parameters(); ++i)
        squares += (values[i] - mean[i]) * (values[i] - mean[i]);
      distance = std::sqrt(reduced(session_, squares, MPI_SUM) / count);
      const bool evaluates_each =
          reduced(session_, own && own->evaluated == IndividualModels::each ? 1 : 0, MPI_MAX) > 0;
      row.evaluation = evaluates_each ? evaluation_of_each(own, count) : evaluation_of(mean);
    }
    if (is_root_) recorder_.add(row, distance);
  }

  Publication publication_of(const WorkerModel* own, Step step) const {
    std::vector<double> most(4);
    if (own)
      most = {static_cast<double>(own->time.time_since_epoch().count()), static_cast<double>(own->samples),
              static_cast<double>(own->bytes.value()), own->learning_rate};
    reduced(session_, most, MPI_MAX);
    return {.step = step,
            .time = Time{Duration{static_cast<Duration::rep>(most[0])}},
            .samples = static_cast<std::int64_t>(most[1]),
            .bytes = static_cast<Bytes::Rep>(most[2]),
            .learning_rate = most[3]};
  }

  Evaluation evaluated(const ModelStatePtr& model) {
    Evaluation result;
    training_.evaluate({model}, [&result](const Evaluation& evaluation) { result = evaluation; });
    training_.executor().wait_all();
    return result;
  }

  std::optional<Evaluation> evaluation_of(const std::vector<double>& mean) {
    if (!is_root_) return std::nullopt;
    const std::vector<float> values(mean.begin(), mean.end());
    return evaluated(training_.from_averaged(training_.initial_state(), parameters_and_buffers, values.data()));
  }

  Evaluation evaluation_of_each(const WorkerModel* own, double count) {
    const Evaluation mine = own ? evaluated(own->model) : Evaluation{};
    std::vector<double> sums = {mine.test_loss, mine.test_accuracy, mine.train_loss, mine.finite ? 0.0 : 1.0};
    reduced(session_, sums, MPI_SUM);
    return {.test_loss = sums[0] / count,
            .test_accuracy = sums[1] / count,
            .train_loss = sums[2] / count,
            .finite = sums[3] == 0};
  }

  const MpiSession& session_;
  bool is_root_;
  Training& training_;
  Recorder& recorder_;
  std::vector<WorkerModel> own_;  // ascending in step
};

using HostClock = std::chrono::steady_clock;

// Returns the rank that publishes the model: the first server, or worker 0 if servers hold only slices of the model.
int publishing_rank(const Run& run) {
  const Servers servers = run.algorithm->traits().servers;
  return servers > 0 && !servers.hold_slices() ? run.cluster.workers : 0;
}
// Returns the rank that completes rows of steps.csv: the first server if there is one, otherwise worker 0.
int booking_rank(const Run& run) { return run.algorithm->traits().servers > 0 ? run.cluster.workers : 0; }

// Returns what the run must record, which is equal on all ranks.
RunRecord make_record(const Run& run, const ExecutionBackend& backend) {
  const RecordingPlan& plan = run.recording;
  RunRecord record;
  SpanRecorder::Limits limits{.spans = plan.trace_events};
  if (plan.trace_seconds) limits.time = from_seconds(*plan.trace_seconds);
  if (plan.trace) record.spans.emplace(run.cluster.workers, run.algorithm->traits().servers, limits);
  if (plan.records_durations(backend.mpi != nullptr)) record.durations.emplace();
  if (plan.arrivals) record.arrivals.emplace();
  return record;
}

std::unique_ptr<Cluster> make_cluster(const Run& run, const ExecutionBackend& backend, Training& training,
                                      RunObserver* observer, RunRecord* record,
                                      std::function<void(const std::string&)> before_abort, CheckpointStore* store) {
  if (!backend.mpi) return make_simulated_cluster(run, training, observer, record);
  return make_mpi_cluster({.workers = run.cluster.workers,
                           .servers = run.algorithm->traits().servers,
                           .compute_time = *run.cluster.compute_time,
                           .pace = run.cluster.pace,
                           .training = training,
                           .observer = observer,
                           .record = record,
                           .outages = run.cluster.outages.get(),
                           .session = *backend.mpi,
                           .before_abort = std::move(before_abort),
                           .store = store});
}

// Computes one gradient before the clock starts. A process's first gradient takes several times as long as later ones,
// because libraries initialise themselves. On the wall clock, the process's worker would seem to be a straggler.
void warm_up(const Run& run, const Objective& objective) {
  const MicroBatch micro_batch{};
  const auto parameters = objective.initial_parameters(run.seed);
  const auto buffers = objective.initial_buffers();
  objective.gradient(parameters.data(), buffers.empty() ? nullptr : buffers.data(), std::span(&micro_batch, 1));
}

// Returns the failure message for an exception that ended the run.
std::string reason_of(const std::exception& problem, const Run& run) {
  if (!dynamic_cast<const std::bad_alloc*>(&problem)) return problem.what();
  if (run.training.time_only) return fmt::format("not enough memory for {} workers", run.cluster.workers);
  if (run.training.parameter_bytes == Bytes{0}) return "not enough memory";
  const double model_gb = 1e-9 * static_cast<double>(run.training.parameter_bytes.value()) *
                          (1 + run.training.optimizer->moments());  // models with their optimizer states
  return fmt::format(
      "not enough memory: the model and its optimizer's state take {:.3g} GB; if each of the {} workers holds a model, "
      "these take {:.3g} GB; gradients come on top",
      model_gb, run.cluster.workers, model_gb * run.cluster.workers);
}

// Runs the algorithm and fills in the outcome, also if the run ends with an exception.
void run_recorded(const Run& run, const ExecutionBackend& backend, RunTraining& training, Recorder& recorder,
                  Outcome& outcome, bool needs_durations, const std::function<void(const std::string&)>& before_abort,
                  const SimulatedRunCheckpoints* checkpoints, CheckpointStore* store) {
  const bool publishes = !backend.mpi || backend.mpi->rank() == publishing_rank(run);
  const bool records = publishes || backend.mpi->rank() == booking_rank(run);
  RunObserver* observer = records ? &recorder : nullptr;
  RunRecord record = make_record(run, backend);
  if (needs_durations && !record.durations) record.durations.emplace();
  RunRecord* const wanted = record.spans || record.durations || record.arrivals ? &record : nullptr;
  const auto cluster = make_cluster(run, backend, *training.training, observer, wanted, before_abort, store);
  const RunContext context = context_of(run, *cluster, *training.training, &recorder, wanted);
  if (backend.mpi && training.objective) warm_up(run, *training.objective);
  if (publishes) recorder.begin(context.initial_model, run.training.learning_rate->at(Step{0}));
  try {
    outcome.totals = run_algorithm(*run.algorithm, context);
    if (checkpoints) checkpoints->check_end();
    if (!backend.mpi || backend.mpi->rank() == 0) {
      if (record.spans) outcome.timeline = record.spans->finish(outcome.totals->end);
      outcome.durations = std::move(record.durations);
      if (record.arrivals) outcome.arrivals = in_order(std::move(*record.arrivals));
    }
  } catch (const Interrupted&) {
    throw;
  } catch (const ReplayMismatch&) {
    throw;
  } catch (const Diverged&) {  // the recording already shows the divergence
  } catch (const std::exception& problem) {
    outcome.failure = reason_of(problem, run);
  }
  try {
    if (backend.mpi && outcome.failure.empty())
      IndividualModelsOfRanks(*backend.mpi, publishing_rank(run), *training.training, recorder).combine(run.evaluation);
    if (records) recorder.finish();
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& problem) {
    if (outcome.failure.empty()) outcome.failure = reason_of(problem, run);
  }
}

// Returns the recording of rank `from` on rank 0, and an empty recording on other ranks.
Recording move_to_rank_0(const MpiSession& session, int from, Recording recording) {
  if (from == 0) return session.rank() == 0 ? std::move(recording) : Recording{};
  StoredBytes stored;
  if (session.rank() == from) StateArchive(stored.sink())(recording);
  std::vector<std::string> texts = texts_on_rank_0(session, stored.bytes);
  if (session.rank() > 0) return {};
  stored.bytes = std::move(texts[static_cast<std::size_t>(from)]);
  StateArchive(stored.source())(recording);
  return recording;
}

// Combines, on rank 0, the recordings of the rank that publishes and the rank that completes rows of steps.csv.
Recording gather_on_rank_0(const MpiSession& session, const Run& run, const Recording& own) {
  Recording gathered = move_to_rank_0(session, publishing_rank(run), own);
  if (booking_rank(run) == publishing_rank(run)) return gathered;
  gathered.rows = move_to_rank_0(session, booking_rank(run), own).rows;
  cut_after_divergence(gathered);
  return gathered;
}

// Counts the kinds of samples (classes, lengths) whose gradients go into the model, for recording.samples. A time-only
// run has no gradients that name their micro-batches. So it counts finished micro-batches, and there are no counts if
// finished micro-batches were dropped, or if a server decides which ones to keep.
class KeptCounter {
 public:
  explicit KeptCounter(const Run& run) : run_(run) {
    if (!run.recording.samples || !run.training.make_kinds) return;
    if (run.training.time_only && run.algorithm->traits().servers > 0) return;
    kinds_ = run.training.make_kinds();
    kept_ = kinds_->none();
    const std::int64_t per_step = std::int64_t{run.cluster.workers} * run.cluster.micro_batches;
    recent_steps_ = most_recent_samples / (per_step * run.training.samples_per_micro_batch);
    if (run.training.time_only || recent_steps_ < 2) recent_steps_ = 0;
    recent_.resize(static_cast<std::size_t>(recent_steps_ * per_step));
  }
  bool counts() const { return kinds_ != nullptr; }
  bool needs_durations() const { return counts() && run_.training.time_only; }
  std::function<void(const MicroBatch&)> on_kept() {
    if (!counts()) return {};
    return [this](const MicroBatch& micro_batch) {
      kinds_->add(micro_batch, kept_);
      if (recent_steps_ > 0 && micro_batch.index < run_.cluster.micro_batches)
        recent_[place_of(micro_batch)] = micro_batch.step.value() + 1;
    };
  }
  // Whether the last model is needed: for the loss of each range of lengths, and for the bias of kept gradients.
  bool needs_model(const Objective* objective) const { return counts() && objective && objective->buffers() == 0; }
  void serialise(StateArchive& archive) { archive(kept_.by_class, kept_.by_length, recent_); }
  // Sets the kept samples in rank 0's outcome. Collective under MPI. Requires counts().
  void report(const ExecutionBackend& backend, const Objective* objective, Outcome& outcome) {
    if (backend.mpi && !needs_durations()) add_up(*backend.mpi);
    if (!outcome.totals || !backend.is_rank_0()) return;
    const RunTotals& totals = *outcome.totals;
    if (needs_durations() && !(outcome.durations && add(*outcome.durations, totals))) return;
    Step steps{};
    for (const StepRow& row : outcome.recording.rows) steps = std::max(steps, row.step);
    KindCounts offered = offered_in(steps, totals);
    if (!agrees(offered, totals)) offered = {};
    outcome.samples = {.by_class = {kept_.by_class, std::move(offered.by_class)},
                       .by_length = {kept_.by_length, std::move(offered.by_length)},
                       .longest = kinds_->longest()};
    if (needs_model(objective) && !outcome.recording.parameters.empty())
      evaluate(*objective, outcome.recording.parameters.front(), steps, totals, *outcome.samples);
  }

 private:
  // The bias is estimated from the last steps, which together have at most this many samples.
  static constexpr std::int64_t most_recent_samples = 20'000;

  // Counts finished micro-batches. Returns false if some of them were not kept.
  bool add(const std::vector<MicroBatchTime>& durations, const RunTotals& totals) {
    if (std::accumulate(totals.kept.begin(), totals.kept.end(), std::int64_t{0}) != std::ssize(durations)) return false;
    for (const MicroBatchTime& time : durations) kinds_->add({time.worker, time.step, time.index}, kept_);
    return true;
  }
  // Sums the counts of all ranks on rank 0.
  void add_up(const MpiSession& session) {
    for (std::vector<std::int64_t>* const own : {&kept_.by_class, &kept_.by_length, &recent_}) {
      std::vector<double> sums(own->begin(), own->end());
      reduced(session, sums, MPI_SUM);
      std::ranges::transform(sums, own->begin(), [](double sum) { return static_cast<std::int64_t>(sum); });
    }
  }
  void evaluate(const Objective& objective, const std::vector<float>& parameters, Step steps, const RunTotals& totals,
                KeptSamples& result) const {
    const bool knows_offered = !result.by_class.offered.empty() || !result.by_length.offered.empty();
    if (knows_offered && are_of_file(steps, totals) && drops(totals))
      result.gradient_bias = bias_in_last_steps(objective, parameters, steps);
    for (const auto& samples : kinds_->test_samples()) {
      const EvaluationSums sums = objective.evaluate_samples(parameters.data(), nullptr, Split::test, samples);
      const auto count = static_cast<double>(sums.samples);
      result.test_loss.push_back(count > 0 ? sums.loss / count : std::nan(""));
      if (objective.has_accuracy())
        result.test_accuracy.push_back(count > 0 ? static_cast<double>(sums.correct) / count : std::nan(""));
    }
  }
  std::size_t place_of(const MicroBatch& of) const {
    const std::int64_t row = of.step.value() % recent_steps_ * run_.cluster.workers + of.worker.value;
    return static_cast<std::size_t>(row * run_.cluster.micro_batches + of.index);
  }
  // Requires are_of_file(). nullopt if there are fewer than two steps, or if the even or the odd ones keep nothing.
  std::optional<GradientBias> bias_in_last_steps(const Objective& objective, const std::vector<float>& parameters,
                                                 Step steps) const {
    std::vector<MicroBatch> kept, dropped;
    for (Step step = std::max(Step{0}, steps - Step{recent_steps_}); step < steps; ++step)
      for (const Rank worker : Ranks(run_.cluster.workers))
        for (int index = 0; index < run_.cluster.micro_batches; ++index) {
          const MicroBatch micro_batch{worker, step, index};
          (recent_[place_of(micro_batch)] == step.value() + 1 ? kept : dropped).push_back(micro_batch);
        }
    return gradient_bias(objective, parameters.data(), kept, dropped);
  }
  // Returns the counts of all samples, kept or dropped; empty if the accounts do not determine them.
  KindCounts offered_in(Step steps, const RunTotals& totals) const {
    if (are_of_file(steps, totals)) return kinds_->of_steps(steps);
    if (!run_.algorithm->traits().takes_data_in_turn || run_.cluster.outages) return {};
    std::vector<std::int64_t> of_workers;
    for (std::size_t worker = 0; worker < totals.kept.size(); ++worker)
      of_workers.push_back(totals.kept[worker] + totals.dropped[worker]);
    return kinds_->of_first(of_workers);
  }
  // Whether each worker has as many micro-batches as the experiment file gives it in this number of steps.
  bool are_of_file(Step steps, const RunTotals& totals) const {
    const std::int64_t each = steps.value() * run_.cluster.micro_batches;
    for (std::size_t worker = 0; worker < totals.kept.size(); ++worker)
      if (totals.kept[worker] + totals.dropped[worker] != each) return false;
    return true;
  }
  static bool drops(const RunTotals& totals) {
    return std::ranges::any_of(totals.dropped, [](std::int64_t count) { return count != 0; });
  }
  // Whether the kept samples are among the offered ones; false if the method used micro-batches of other steps. If
  // nothing is dropped, the two must be equal.
  bool agrees(const KindCounts& offered, const RunTotals& totals) const {
    if (!drops(totals)) return kept_.by_class == offered.by_class && kept_.by_length == offered.by_length;
    return std::ranges::equal(kept_.by_class, offered.by_class, std::less_equal<>()) &&
           std::ranges::equal(kept_.by_length, offered.by_length, std::less_equal<>());
  }

  const Run& run_;
  std::shared_ptr<const SampleKinds> kinds_;
  KindCounts kept_;
  // The kept micro-batches of the last steps: 1 + step, or older numbers, at the place of step % recent_steps_, worker
  // and index. No steps: the bias is not estimated.
  std::int64_t recent_steps_ = 0;
  std::vector<std::int64_t> recent_;
};

void execute_into(Outcome& outcome, const Run& run, const ExecutionBackend& backend, Progress& progress,
                  const std::function<void(const Outcome&)>& before_abort, const CheckpointUse* use) {
  KeptCounter kept(run);
  CheckpointLog log;
  std::optional<CheckpointLog::Scope> logged;
  if (use) logged.emplace(&log);
  RunTraining training(run, run.training.make_objective ? run.training.make_objective() : nullptr,
                       backend.mpi ? 0 : backend.threads, kept.on_kept(), backend.processes);
  outcome.samples_per_micro_batch =
      training.objective ? training.objective->samples_per_micro_batch() : run.training.samples_per_micro_batch;
  Recorder* listened = nullptr;
  std::optional<SimulatedRunCheckpoints> checkpoints;
  Recorder recorder({.plan = run.evaluation,
                     .measurements = run.measurements,
                     .workers = run.cluster.workers,
                     .defer = backend.mpi != nullptr,
                     .keep_parameters = run.recording.parameters || kept.needs_model(training.objective.get()),
                     .on_change =
                         [&] {
                           if (checkpoints) checkpoints->mark_round();
                           if (progress.due()) progress.show(listened->position());
                         }},
                    *training.training);
  listened = &recorder;
  const auto save_before_abort = [&](const std::string& what) {
    if (interrupted()) backend.mpi->abort_as_asked(what_stays);
    outcome.failure = what;
    outcome.end = std::chrono::system_clock::now();
    outcome.recording = recorder.recording();
    try {
      before_abort(outcome);
    } catch (const std::exception&) {  // the ranks end with the message about the failure
    }
  };
  const auto start = HostClock::now();
  std::optional<MpiRunCheckpoints> of_ranks;
  if (use && backend.mpi)
    of_ranks.emplace(run, *use, *backend.mpi, progress, [&kept](StateArchive& archive) { kept.serialise(archive); });
  else if (use)
    checkpoints.emplace(run, *use, log, training.executor, recorder, training.training->divided(), progress);
  run_recorded(run, backend, training, recorder, outcome, kept.needs_durations(), save_before_abort,
               checkpoints ? &*checkpoints : nullptr, of_ranks ? &*of_ranks : nullptr);
  if (of_ranks) of_ranks->settle();
  outcome.host_s = std::chrono::duration<double>(HostClock::now() - start).count();
  if (checkpoints) outcome.host_s += checkpoints->host_s_before();
  if (of_ranks) outcome.host_s += of_ranks->host_s_before();
  outcome.recording = recorder.recording();
  if (backend.mpi) outcome.recording = gather_on_rank_0(*backend.mpi, run, outcome.recording);
  if (kept.counts()) kept.report(backend, training.objective.get(), outcome);
  if (!run.recording.records_durations(backend.mpi != nullptr)) outcome.durations.reset();
  if (!run.recording.parameters) {
    outcome.recording.parameters.clear();
    outcome.recording.buffers.clear();
  }
}

// Returns metadata.json: machine, program and time of a run. Only this one of the run's files has times of the host.
std::string metadata_of(const Run& run, const Outcome& outcome, const RunSummary& summary,
                        const ExecutionBackend& backend) {
  const BuildInfo& build = build_info();
  const Arithmetic& arithmetic = run.training.arithmetic;
  Json json = {{"schema_version", results_schema_version},
               {"results_version", results_version},
               {"syncopate_version", build.version},
               {"commit", build.commit},
               {"dirty", build.dirty},
               {"host", host_name()},
               {"operating_system", operating_system()},
               {"processor", processor_name()},
               {"cores", std::thread::hardware_concurrency()},
               {"compiler", build.compiler},
               {"compiler_flags", build.flags},
               {"libtorch_version", torch_version()},
               {"blas_kernel", torch_is_loaded() ? blas_kernel() : "none loaded"},
               {"torch_kernels", torch_kernels(arithmetic.device)},
               {"device", torch_device(arithmetic.device)},
               {"precision", arithmetic.bfloat16 ? "bfloat16" : "float32"},
               {"cluster", backend.mpi ? "mpi" : "simulated"},
               {"processes", backend.together() ? backend.together()->size() : 1},
               {"threads", backend.mpi ? 1 : backend.threads},
               {"start", iso_time(outcome.start)},
               {"end", iso_time(outcome.end)},
               {"exit", to_string(summary.status)},
               {"configuration_hash", run.hash},
               {"course", run.fingerprint}};
  if (!backend.call.empty()) json["call"] = backend.call;
  if (run.cluster.measured_micro_batch_s) json["measured_micro_batch_s"] = *run.cluster.measured_micro_batch_s;
  if (const auto& fit = run.cluster.measured_fit)
    json["measured_fit"] = {{"r_squared", fit->r_squared},
                            {"largest_residual_s", fit->largest_residual_s},
                            {"typical_residual_s", fit->typical_residual_s},
                            {"micro_batches", fit->points}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

Outcome execute(const Run& run, const ExecutionBackend& backend, Progress& progress,
                const std::function<void(const Outcome&)>& before_abort, const CheckpointUse* checkpoints) {
  if (!has_checkpoints(run, backend.mpi != nullptr)) checkpoints = nullptr;
  // Processes that divide a run report a replay that differs from the log to each other, as they report a failure.
  constexpr const char* of_replay_mismatch = "its replay differs";
  std::optional<std::string> replay_mismatch;
  Outcome outcome;
  outcome.start = std::chrono::system_clock::now();
  outcome.on_virtual_clock = backend.mpi == nullptr;
  try {
    execute_into(outcome, run, backend, progress, before_abort, checkpoints);
  } catch (const Interrupted&) {
    throw;
  } catch (const ReplayMismatch& other) {
    replay_mismatch = other.what();
    if (backend.processes) outcome.failure = fmt::format("{}: {}", of_replay_mismatch, other.what());
  } catch (const std::exception& problem) {  // data cannot be loaded, or memory is insufficient
    outcome.failure = reason_of(problem, run);
    if (backend.mpi) backend.mpi->abort(outcome.failure);
  }
  if (backend.processes) {
    outcome.failure = backend.processes->close(outcome.failure);
    // If a process has failed for any other reason, the run fails on all processes.
    const bool is_replay_mismatch = checkpoints && outcome.failure.find(of_replay_mismatch) != std::string::npos;
    replay_mismatch = is_replay_mismatch ? std::optional(outcome.failure) : std::nullopt;
  }
  if (replay_mismatch) {
    const std::string why = fmt::format("checkpoint {}: {}; the run starts from the beginning",
                                        checkpoints->file.string(), *replay_mismatch);
    if (backend.is_rank_0()) standard_error.write(printable_lines(why) + "\n");
    CheckpointUse from_the_beginning = *checkpoints;
    from_the_beginning.resumes = false;
    return execute(run, backend, progress, before_abort, &from_the_beginning);
  }
  outcome.end = std::chrono::system_clock::now();
  return outcome;
}

RunSummary summarise(const Run& run, const Outcome& outcome) {
  RunSummary summary = summarise(run, outcome.recording, outcome.totals ? &*outcome.totals : nullptr,
                                 outcome.samples_per_micro_batch, outcome.host_s);
  if (!outcome.failure.empty()) {
    summary.status = RunStatus::failed;
    summary.reason = outcome.failure;
  }
  // The formulas predict times of the virtual clock.
  if (summary.status == RunStatus::finished && outcome.on_virtual_clock && run.algorithm->traits().has_formulas)
    summary.predicted = predict_by_formula(run, sample_times(run)).all;
  summary.recorded = run.recording;
  summary.recorded.trace = outcome.timeline.has_value();
  summary.recorded.durations = outcome.durations.has_value();
  summary.recorded.arrivals = outcome.arrivals.has_value();
  if (outcome.arrivals) summary.arrivals = mean_arrivals(*outcome.arrivals);
  summary.recorded.samples = run.recording.samples;  // even if the run has no such numbers
  summary.samples_kept = outcome.samples;
  summary.recorded.parameters = !outcome.recording.parameters.empty();
  return summary;
}

FileContents files_of(const Run& run, const Outcome& outcome, const RunSummary& summary,
                      const ExecutionBackend& backend) {
  FileContents files{{"config.toml", run.resolved_toml},
                     {"metadata.json", metadata_of(run, outcome, summary, backend)},
                     {"metrics.csv", metrics_csv(outcome.recording.metrics)},
                     {"steps.csv", steps_csv(outcome.recording.rows)},
                     {"summary.json", to_json(summary)}};
  if (outcome.timeline)
    files["trace.json.gz"] = gzip(trace_events(*outcome.timeline, run, backend.mpi ? "mpi" : "simulated"));
  if (!outcome.recording.parameters.empty()) files["parameters.npy"] = npy(outcome.recording.parameters);
  if (!outcome.recording.measurements.empty())
    files["measurements.csv"] = measurements_csv(outcome.recording.measurements);
  if (!outcome.recording.buffers.empty()) files["buffers.npy"] = npy(outcome.recording.buffers);
  if (outcome.durations) files["durations.csv.gz"] = gzip(durations_csv(*outcome.durations));
  if (outcome.arrivals) files["arrivals.csv.gz"] = gzip(arrivals_csv(*outcome.arrivals));
  files[list_of_files] = listed(files);
  return files;
}

Participants participants(const Experiment& experiment) {
  Participants result;
  for (const Run& run : experiment.runs) {
    result.workers = std::max(result.workers, run.cluster.workers);
    result.servers = std::max<int>(result.servers, run.algorithm->traits().servers);
  }
  return result;
}

RunTraining::RunTraining(const Run& run, std::shared_ptr<const Objective> trained, int threads,
                         std::function<void(const MicroBatch&)> on_kept, ProcessGroup* processes)
    : objective(std::move(trained)), executor(threads) {
  Training::Options options = run.training.options;
  options.train_samples = run.evaluation.train_samples;
  options.seed = run.seed;
  options.on_kept = std::move(on_kept);
  options.processes = processes;
  options.workers = run.cluster.workers;
  training.emplace(objective, run.training.optimizer, options, executor);
  if (objective) return;
  training->set_parameter_bytes(run.training.parameter_bytes);
  training->set_tensors(run.training.tensors);
}

std::unique_ptr<Cluster> make_simulated_cluster(const Run& run, Training& training, RunObserver* observer,
                                                RunRecord* record) {
  return make_simulated_cluster({.workers = run.cluster.workers,
                                 .servers = run.algorithm->traits().servers,
                                 .micro_batches = run.cluster.micro_batches,
                                 .compute_time = *run.cluster.compute_time,
                                 .network = *run.cluster.network,
                                 .training = training,
                                 .observer = observer,
                                 .record = record,
                                 .outages = run.cluster.outages.get(),
                                 .pauses = run.cluster.pauses.get(),
                                 .only_servers_send_to_workers = run.algorithm->traits().has_servers_alone()},
                                run.lockstep_from_step());
}

RunContext context_of(const Run& run, Cluster& cluster, Training& training, RunObserver* observer, RunRecord* record) {
  return {.cluster = cluster,
          .training = training,
          .learning_rate = *run.training.learning_rate,
          .budget = run.budget,
          .micro_batches = run.cluster.micro_batches,
          .samples_per_micro_batch = run.training.samples_per_micro_batch,
          .observer = observer,
          .record = record,
          .initial_model = training.initial_state(),
          .seed = run.seed,
          .data_of = run.cluster.data_of};
}

}  // namespace syncopate
