#include "experiments/execution/cost.hpp"

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <fstream>
#include <set>
#include <system_error>

#include "results/found_runs.hpp"
#include "workers/base/files.hpp"
#include "workers/base/machine.hpp"
#include "workers/base/process.hpp"
#include "workers/models/torch_library.hpp"
#include "workers/training/flat_arithmetic.hpp"

namespace syncopate {

namespace {

namespace fs = std::filesystem;

constexpr double set_up_s = 1;         // in shorter samples the set-up of libraries may prevail
constexpr double long_enough_s = 0.3;  // for the steps by which two samples differ
constexpr double clear_share = 0.25;   // of the smaller sample, most of which may be evaluations of varying time
constexpr double at_most_s = 10;       // for all samples

struct Sample {
  double share = 0;  // of the budget
  std::int64_t steps = 0;
  RunCost cost{};
};

void cut(Budget& budget, double share) {
  const auto part = [share](std::int64_t whole) {
    return std::max<std::int64_t>(1, std::llround(share * static_cast<double>(whole)));
  };
  if (budget.steps) budget.steps = Step{part(budget.steps->value())};
  if (budget.seconds) *budget.seconds *= share;
  if (budget.samples) budget.samples = part(*budget.samples);
  if (budget.bytes) budget.bytes = Bytes{part(budget.bytes->value())};
}

double share_of(const Budget& budget, const RunSummary& summary) {
  double share = 0;
  const auto reached = [&share](auto value, auto limit) {
    share = std::max(share, static_cast<double>(value) / static_cast<double>(limit));
  };
  if (budget.steps) reached(summary.steps, budget.steps->value());
  if (budget.seconds) reached(summary.end_time_s, *budget.seconds);
  if (budget.samples) reached(summary.samples, *budget.samples);
  if (budget.bytes) reached(summary.communicated_bytes, budget.bytes->value());
  return share;
}

// Makes the run's first steps, about this share of its budget; nullopt if they fail.
std::optional<Sample> sample_of(const Run& run, double share, const ExecutionBackend& backend) {
  Run part = run;
  cut(part.budget, share);
  Progress progress(Progress::Style::silent, 1, 1);
  const Outcome outcome = execute(part, backend, progress, [](const Outcome&) {});
  const RunSummary summary = summarise(part, outcome);
  if (summary.status != RunStatus::finished) return {};
  double bytes = 0;
  for (const auto& [name, contents] : files_of(part, outcome, summary, backend))
    bytes += static_cast<double>(contents.size());
  return Sample{.share = share_of(run.budget, summary),
                .steps = summary.steps,
                .cost = {.host_s = outcome.host_s, .bytes = bytes}};
}

// A line through two samples: `all` of the budget, and what is `fixed`, with the evaluations at the beginning and the
// end.
struct Line {
  double all = 0, fixed = 0;
};
Line line_through(const Sample& a, const Sample& b, double RunCost::*of) {
  const double all = std::max(0.0, (b.cost.*of - a.cost.*of) / (b.share - a.share));
  return {.all = all, .fixed = std::max(0.0, a.cost.*of - all * a.share)};
}

// The time of one of [measurements], by the first steps with and without measurements.
double measurement_s(const Run& run, double share, const ExecutionBackend& backend) {
  if (run.measurements.every_steps == Step{}) return 0;
  Run without = run;
  without.measurements = {};
  const auto with_it = sample_of(run, share, backend), without_it = sample_of(without, share, backend);
  if (!with_it || !without_it || with_it->steps == 0) return 0;
  const auto measured = 1 + with_it->steps / run.measurements.every_steps.value();
  return std::max(0.0, with_it->cost.host_s - without_it->cost.host_s) / static_cast<double>(measured);
}

// The number of evaluations besides those at the beginning and the end.
double evaluations_along(const Run& run, double steps) {
  if (run.evaluation.every_duration > Duration{} && run.budget.seconds)
    return *run.budget.seconds / to_seconds(run.evaluation.every_duration);
  return steps / static_cast<double>(std::max<std::int64_t>(1, run.evaluation.every_steps.value()));
}

KnownCost extrapolated(const Run& run, const Sample& before, const Sample& last, double measurement_s) {
  const double steps = static_cast<double>(last.steps) / last.share;
  const Line time = line_through(before, last, &RunCost::host_s), space = line_through(before, last, &RunCost::bytes);
  const double measurements =
      measurement_s > 0 ? 1 + steps / static_cast<double>(run.measurements.every_steps.value()) : 0;
  return {
      .kind = run.timing_class,
      .method = run.method,
      .steps = std::llround(steps),
      .micro_batches = steps * run.cluster.workers * run.cluster.micro_batches,
      .cost = {.host_s = time.all + time.fixed / 2 * (2 + evaluations_along(run, steps)) + measurement_s * measurements,
               .bytes = space.all + space.fixed},
      .fixed_bytes = space.fixed};
}

// Two digits suffice for an estimate.
std::string about(double seconds) {
  if (seconds < 1) return "less than a second";
  if (seconds < 99.5) return fmt::format("about {:.2g} s", seconds);
  if (seconds < 99.5 * 60) return fmt::format("about {:.2g} min", seconds / 60);
  const double hours = seconds / 3600;
  return hours < 99.5 ? fmt::format("about {:.2g} h", hours) : fmt::format("about {:.0f} h", hours);
}

std::string size_text(double bytes) {
  constexpr std::array units = {"kB", "MB", "GB", "TB"};
  double size = bytes / 1000;
  std::size_t unit = 0;
  while (size >= 999.5 && unit + 1 < units.size()) {
    size /= 1000;
    ++unit;
  }
  const std::string number = size < 99.5 ? fmt::format("{:.2g}", size) : fmt::format("{:.0f}", size);
  return fmt::format("about {} {}", number, units[unit]);
}

constexpr std::size_t most_runs_read = 200;            // a tenth of a second
constexpr std::uintmax_t longest_summary = 1'000'000;  // of about ten thousand workers, read in the same time

std::vector<fs::path> some_run_directories(const fs::path& directory, bool mpi) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    if (const std::string name = entry->path().filename().string(); name.starts_with("seed=")) {
      if (name.ends_with("-mpi") == mpi) found.push_back(entry->path());
      entry.disable_recursion_pending();
    }
  std::ranges::sort(found);
  std::vector<fs::path> chosen;
  const std::size_t every = found.size() / most_runs_read + 1;
  for (std::size_t i = 0; i < found.size(); i += every) chosen.push_back(found[i]);
  return chosen;
}

// `all` bytes, and those that are `fixed`: tables and traces grow with the number of steps.
Line size_of(const fs::path& directory) {
  Line size;
  for (const fs::directory_entry& file : fs::directory_iterator(directory)) {
    if (!file.is_regular_file()) continue;
    const auto bytes = static_cast<double>(file.file_size());
    const std::string name = file.path().filename().string();
    const bool grows = name.ends_with(".csv") || name.ends_with(".gz");
    size.all += bytes;
    if (!grows) size.fixed += bytes;
  }
  return size;
}

std::optional<KnownCost> read_cost(const fs::path& directory) {
  if (fs::file_size(directory / "summary.json") > longest_summary) return {};
  const auto summary_text = read_file(directory / "summary.json"), config = read_file(directory / "config.toml"),
             metadata = read_file(directory / "metadata.json");
  if (!summary_text || !config || !metadata) return {};
  static const std::string processor = processor_name();
  if (Json::parse(*metadata).value("processor", "") != processor) return {};
  const std::optional<RunSummary> summary = summary_from_json(*summary_text);
  if (!summary || summary->status != RunStatus::finished || summary->steps == 0) return {};
  const TomlNode document = parse_toml(*config, "config.toml");
  const TomlNode* cluster = document.find("cluster");
  if (!cluster) return {};
  const auto integer_at = [cluster](const char* key) {
    const TomlNode* node = cluster->find(key);
    const auto* number = node ? std::get_if<std::int64_t>(&node->value) : nullptr;
    return number ? static_cast<double>(*number) : 1;
  };
  const Line size = size_of(directory);
  return KnownCost{
      .kind = timing_class(document),
      .method = summary->method,
      .steps = summary->steps,
      .micro_batches = static_cast<double>(summary->steps) * integer_at("workers") * integer_at("micro_batches"),
      .cost = {.host_s = summary->host_s, .bytes = size.all},
      .fixed_bytes = size.fixed};
}

// Costs of finished runs on processors like this machine's, an even choice of very many. Skips unreadable ones.
std::vector<KnownCost> known_costs(const fs::path& experiment_directory, bool mpi) {
  std::vector<KnownCost> known;
  for (const fs::path& directory : some_run_directories(experiment_directory, mpi)) {
    try {
      if (auto cost = read_cost(directory)) known.push_back(std::move(*cost));
    } catch (const std::exception&) {  // damaged, or being written
    }
  }
  return known;
}

// steps x workers x micro-batches per step, if the budget counts steps.
std::optional<double> planned_micro_batches(const Run& run) {
  const std::optional<Step> steps = planned_steps(run);
  if (!steps) return {};
  return static_cast<double>(steps->value()) * run.cluster.workers * run.cluster.micro_batches;
}

// On the disk, by the number of rows and files, within a factor of about two; nullopt if a budget does not count steps.
std::optional<double> planned_bytes(std::span<const Run* const> runs, bool mpi) {
  // Bytes of rows, plain or compressed, and of the files that every run has.
  constexpr double row = 40, evaluation = 110, zipped_row = 9, span = 12, files = 8000, of_worker = 95;
  double bytes = 0;
  for (const Run* run : runs) {
    const auto micro_batches = planned_micro_batches(*run);
    if (!micro_batches) return {};
    const auto steps = static_cast<double>(planned_steps(*run)->value());
    const RecordingPlan& recorded = run->recording;
    bytes += files + of_worker * run->cluster.workers + row * steps;
    bytes +=
        evaluation * (2 + steps / static_cast<double>(std::max<Step::Rep>(1, run->evaluation.every_steps.value())));
    if (recorded.parameters) bytes += static_cast<double>(run->training.parameter_bytes.value());
    if (recorded.records_durations(mpi)) bytes += zipped_row * *micro_batches;
    if (recorded.arrivals) bytes += zipped_row * steps * run->cluster.workers;
    if (recorded.trace) bytes += span * std::min(static_cast<double>(recorded.trace_events), 3 * *micro_batches);
  }
  return bytes;
}

constexpr double least_program_bytes = 20e6;      // above the real size, so that small experiments show equal numbers
constexpr double library_bytes = 170e6;           // of LibTorch 1.13 with OpenBLAS after a first gradient
constexpr double simulated_worker_bytes = 30e3;   // tests/README.md: 28 to 31 KB, with a model
constexpr double time_only_worker_bytes = 6.5e3;  // on a stack of its own
constexpr double worker_on_shared_stack_bytes = 3.2e3;  // in turn with others
constexpr double worker_in_lockstep_bytes = 0.6e3;
constexpr double row_text_bytes = 100;     // of a row of a file, which is built in memory
constexpr int most_own_stacks = 8192;      // of SimulatedOptions
constexpr int most_guarded_stacks = 1024;  // of StackPool, like the next two
constexpr double guarded_stack_bytes = 132 * 1024;
constexpr double dense_stack_bytes = 33 * 1024;
constexpr int most_probed_workers = 1024;

// As of the first call: memory that probes free is used again, and LibTorch may be loaded between two calls.
double program_bytes(bool trains_network) {
  static const double resident = [] {
    std::ifstream file("/proc/self/statm");
    double size = 0, pages = 0;
    file >> size >> pages;
    return std::max(pages * static_cast<double>(sysconf(_SC_PAGESIZE)), least_program_bytes);
  }();
  static const bool has_library = torch_is_loaded();
  return trains_network && !has_library ? resident + library_bytes : resident;
}

bool trains(const Run& run) { return !run.training.time_only && run.training.parameter_bytes > Bytes{0}; }

double vector_bytes(const Run& run) {
  return static_cast<double>(run.training.parameter_bytes.value()) +
         static_cast<double>(sizeof(float)) * static_cast<double>(run.training.memory.buffers);
}

// If each worker had a model of its own, unless the method forbids it.
double most_vectors(const Run& run) {
  const double state = 1 + run.training.optimizer->moments();
  const Traits traits = run.algorithm->traits();
  return traits.sums_gradients ? 2 * state : run.cluster.workers * state + 2 * state;
}

std::optional<MemoryProbe> probed(const Run& run, std::int64_t worker_steps) {
  if (worker_steps <= 0 || run.cluster.workers > most_probed_workers || run.cluster.to_be_measured) return {};
  try {
    const MemoryProbe found = probe_memory(run, worker_steps);
    return found.vectors > 1 ? std::optional(found) : std::nullopt;
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception&) {  // the run itself will report it
    return {};
  }
}

// The allocator's overhead: each thread has an arena of its own, and free blocks are fragmented. It is large if models
// are created with every exchange, and small if they are updated in place. Measured on an MLP of 1.9 million parameters
// with 1 and 2 threads; a guess for more threads.
double slack(const Run& run, int threads) {
  const Traits traits = run.algorithm->traits();
  const bool stay = traits.sums_gradients || traits.averages_models || traits.publishes_rounds;
  return stay ? 0.1 : std::min(1.0, 0.5 * threads);
}

double vectors_of(const Run& run, const MemoryOptions& options) {
  const double state = 1 + run.training.optimizer->moments();
  if (options.is_mpi_rank) return 2 * state + 3;  // its own, those averaged or sent, and an evaluation's
  const auto found = probed(run, options.worker_steps);
  double vectors = found ? found->vectors : most_vectors(run);
  const Traits traits = run.algorithm->traits();
  const bool may_part_later = !traits.sums_gradients && traits.servers == 0;  // local steps may follow common ones
  if (found && !found->is_whole && may_part_later) vectors = std::max(vectors, most_vectors(run));
  const double of_all = 2 * state;  // held once by each process
  const int largest_block = (run.cluster.workers + options.dividing - 1) / options.dividing;
  vectors = std::max(std::min(vectors, of_all), vectors * largest_block / run.cluster.workers);
  vectors *= 1 + slack(run, options.threads);
  // Evaluations run beside the next steps, which then cannot update the model in place. Each thread holds a gradient.
  return vectors + state + options.threads;
}

double worker_bytes(const Run& run) {
  const auto each = [&] {
    if (trains(run)) return simulated_worker_bytes;
    if (run.lockstep_from_step() == Step{0}) return worker_in_lockstep_bytes;
    return run.cluster.workers <= most_own_stacks ? time_only_worker_bytes : worker_on_shared_stack_bytes;
  };
  return each() * run.cluster.workers;
}

// Vectors grow by doubling, and a file's text is in memory beside them.
double record_bytes(const Run& run, bool mpi) {
  const std::optional<Step> planned = planned_steps(run);
  const double steps = planned ? static_cast<double>(planned->value()) : 0;
  const double micro_batches = steps * run.cluster.workers * run.cluster.micro_batches;
  const auto rows = [](double count, std::size_t size) {
    return count * (2 * static_cast<double>(size) + row_text_bytes);
  };
  double bytes = rows(steps, sizeof(StepRow));
  const double evaluations = steps / static_cast<double>(std::max<std::int64_t>(1, run.evaluation.every_steps.value()));
  bytes += rows(evaluations, sizeof(MetricsRow));
  if (mpi) bytes += evaluations * vector_bytes(run);  // kept until the end
  if (run.recording.records_durations(mpi)) bytes += rows(micro_batches, sizeof(MicroBatchTime));
  if (run.recording.arrivals) bytes += rows(steps * run.cluster.workers, sizeof(GradientArrival));
  if (run.recording.trace)
    bytes += rows(std::min(static_cast<double>(run.recording.trace_events), 3 * micro_batches), sizeof(Span));
  return bytes;
}

// The difference between these two sizes tells the model's vectors from other allocations.
constexpr std::size_t small_size = 1024;
constexpr std::size_t large_size = 3072;

double allocated_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks) + static_cast<double>(info.hblkhd);
}

// The model's tensors, shrunk by one factor; matrices shrink in both directions.
std::vector<ParameterTensor> scaled(const std::vector<ParameterTensor>& tensors, std::size_t size) {
  std::size_t whole = 0;
  for (const ParameterTensor& tensor : tensors) whole += tensor.size;
  const double factor = whole == 0 ? 1 : static_cast<double>(size) / static_cast<double>(whole);
  const auto part = [](double value) { return static_cast<std::size_t>(std::max(1.0, std::round(value))); };
  std::vector<ParameterTensor> result;
  std::size_t offset = 0;
  for (ParameterTensor tensor : tensors) {
    if (tensor.rows > 0) {
      const auto rows = static_cast<double>(tensor.rows);
      const double columns = static_cast<double>(tensor.size) / rows, along = std::sqrt(factor);
      tensor.rows = part(rows * along);
      tensor.size = tensor.rows * part(columns * along);
    } else {
      tensor.size = part(static_cast<double>(tensor.size) * factor);
    }
    tensor.offset = offset;
    offset += tensor.size;
    result.push_back(std::move(tensor));
  }
  return result;
}

// Notes the peak at each gradient and evaluation: a step's new vectors exist by then, and old ones may still.
class StandIn : public Objective {
 public:
  StandIn(const Run& run, std::size_t size)
      : chunk_samples_(run.training.memory.chunk_samples),
        fuses_(run.training.memory.fuses_micro_batches),
        samples_(run.training.samples_per_micro_batch) {
    if (run.training.tensors.empty())
      tensors_.push_back({.name = "parameters", .size = size});
    else
      tensors_ = scaled(run.training.tensors, size);
    parameters_ = tensors_.back().offset + tensors_.back().size;
    weights_ = parameters_;
    for (std::size_t i = 1; i < tensors_.size(); ++i)
      if (tensors_[i].place < tensors_[i - 1].place) weights_ = tensors_[i].offset;
  }

  double peak() const { return peak_; }

  std::size_t parameters() const override { return parameters_; }
  std::size_t weights() const override { return weights_; }
  std::vector<ParameterTensor> tensors() const override { return tensors_; }
  std::vector<float> initial_parameters(std::uint64_t) const override { return std::vector<float>(parameters_, 0.1F); }
  PartialGradient gradient(const float*, const float*, std::span<const MicroBatch> micro_batches) const override {
    auto values = std::make_shared<FlatVector>(parameters_);
    std::ranges::fill(values->span(), 1e-3F);
    const float* const data = std::as_const(*values).data();
    PartialGradient result;
    result.segments.push_back({.offset = 0, .size = parameters_, .data = data, .owner = std::move(values)});
    result.loss_sum = static_cast<double>(micro_batches.size());
    note();
    return result;
  }
  std::int64_t chunk_samples() const override { return chunk_samples_; }
  bool fuses_micro_batches() const override { return fuses_; }
  std::int64_t samples_per_micro_batch() const override { return samples_; }
  std::int64_t steps_per_epoch() const override { return 0; }
  std::int64_t evaluation_samples(Split) const override { return 1; }
  EvaluationSums evaluate(const float*, const float*, Split, std::int64_t begin, std::int64_t end) const override {
    note();
    return {.loss = static_cast<double>(end - begin), .correct = 0, .samples = end - begin};
  }
  bool has_accuracy() const override { return false; }

 private:
  void note() const { peak_ = std::max(peak_, allocated_bytes()); }

  std::vector<ParameterTensor> tensors_;
  std::size_t parameters_ = 0;
  std::size_t weights_ = 0;
  std::int64_t chunk_samples_;
  bool fuses_;
  std::int64_t samples_;
  mutable double peak_ = 0;  // one thread makes all calls
};

// The run's network, on which the stand-in's messages take as long as the model's: waiting on links decides how many
// are alive at a time.
class NetworkOfModel : public NetworkModel {
 public:
  NetworkOfModel(std::shared_ptr<const NetworkModel> network, double factor)
      : network_(std::move(network)), factor_(factor) {}
  Duration collective(const CollectiveCall& call) const override { return network_->collective(of_model(call)); }
  Duration message(const MessageCall& call) const override { return network_->message(of_model(call)); }
  bool has_shared_links() const override { return network_->has_shared_links(); }
  bool has_unshared_links() const override { return network_->has_unshared_links(); }
  Route route(const CollectiveCall& call) const override { return network_->route(of_model(call)); }
  Route route(const MessageCall& call) const override { return network_->route(of_model(call)); }
  std::optional<Overlap> overlap() const override { return network_->overlap(); }
  bool varies() const override { return network_->varies(); }

 private:
  template <typename Call>
  Call of_model(Call call) const {
    call.payload = Bytes{std::llround(factor_ * static_cast<double>(call.payload.value()))};
    return call;
  }

  std::shared_ptr<const NetworkModel> network_;
  double factor_;
};

struct Peak {
  double bytes = 0;
  std::size_t parameters = 0;
};

Peak peak_of(Run run, std::size_t size) {
  const double before = allocated_bytes();
  const auto stand_in = std::make_shared<StandIn>(run, size);
  run.cluster.network = std::make_shared<NetworkOfModel>(
      run.cluster.network, static_cast<double>(run.training.parameter_bytes.value()) /
                               (sizeof(float) * static_cast<double>(stand_in->parameters())));
  RunTraining training(run, stand_in, 0);
  Recorder recorder({.plan = run.evaluation, .workers = run.cluster.workers, .on_change = {}}, *training.training);
  const auto cluster = make_simulated_cluster(run, *training.training, &recorder, nullptr);
  const RunContext context = context_of(run, *cluster, *training.training, &recorder);
  recorder.begin(context.initial_model, run.training.learning_rate->at(Step{0}));
  run_algorithm(*run.algorithm, context);
  recorder.finish();
  return {.bytes = stand_in->peak() - before, .parameters = stand_in->parameters()};
}

}  // namespace

std::optional<KnownCost> measured_cost(const Run& run, const ExecutionBackend& backend) {
  const std::optional<Step> planned = planned_steps(run);
  constexpr std::int64_t shortest = 64;  // of which the first 21 are made
  if (backend.together() || (planned && planned->value() < shortest)) return {};
  try {
    constexpr double smallest_share = 1.0 / 4096;  // of budgets that do not count steps
    Run unmeasured = run;
    unmeasured.measurements = {};
    std::optional<Sample> before, last;
    double spent_s = 0;
    bool is_first = true;
    const double first = planned ? 1.0 / static_cast<double>(planned->value()) : smallest_share;
    for (double share = first; share <= 0.25; share *= 4) {
      const std::optional<Sample> sample = sample_of(unmeasured, share, backend);
      if (!sample) return {};
      if (sample->steps <= (last ? last->steps : 0)) continue;
      const bool sets_up = std::exchange(is_first, false) && sample->cost.host_s < set_up_s;
      spent_s += sample->cost.host_s;
      before = last;
      last = sets_up ? std::nullopt : sample;
      const bool differ = before && last->cost.host_s - before->cost.host_s >
                                        std::max(long_enough_s, clear_share * before->cost.host_s);
      if (differ || (before && spent_s > at_most_s)) break;
    }
    if (!before || !last || static_cast<double>(last->steps) < last->share * static_cast<double>(shortest)) return {};
    return extrapolated(run, *before, *last, measurement_s(run, before->share, backend));
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception&) {  // the run itself will report it
    return {};
  }
}

RunPlan run_plan(std::span<const Run* const> to_do, std::vector<KnownCost> known, const MeasureCost& measure) {
  RunPlan work;
  RunCost sum;
  constexpr int most_measured = 3;
  int measured = 0;
  for (const Run* run : to_do) {
    std::optional<RunCost> cost = expected_cost(*run, known);
    if (!cost && measure && measured++ < most_measured)
      if (auto of_first_steps = measure(*run)) {
        work.is_measured = true;
        known.push_back(std::move(*of_first_steps));
        cost = expected_cost(*run, known);
      }
    if (!cost) return {};
    sum.host_s += cost->host_s;
    work.host_s[run->hash] = cost->host_s;
    sum.bytes += cost->bytes;
  }
  work.cost = sum;
  return work;
}

RunPlan plan_of(std::span<const Run> runs, std::span<const int> to_do, std::span<const Run> later,
                const fs::path& results, bool mpi, const MeasureCost& measure) {
  if (runs.empty()) return {};
  std::vector<const Run*> missing;
  std::set<std::string> phases;
  const auto add = [&](const Run& run) {
    missing.push_back(&run);
    const Run* phase = run.common_phase.get();
    if (phase && phases.insert(phase->hash).second && !finished_before(run_directory(results, *phase, mpi), *phase))
      missing.push_back(phase);
  };
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (to_do[i]) add(runs[i]);
  for (const Run& run : later) add(run);
  const auto finished = static_cast<std::size_t>(std::ranges::count(to_do, 0));
  if (missing.empty()) return {.runs = runs.size(), .finished = finished, .later = later.size()};
  RunPlan work = run_plan(missing, known_costs(experiment_directory(results, runs.front().experiment), mpi), measure);
  work.runs = runs.size();
  work.finished = finished;
  work.later = later.size();
  if (!work.cost) work.bytes = planned_bytes(missing, mpi);
  return work;
}

std::vector<int> runs_to_do(std::span<const Run> runs, const fs::path& results, bool mpi) {
  std::vector<int> to_do;
  for (const Run& run : runs) {
    const fs::path directory = run_directory(results, run, mpi);
    const bool is_made = !run.cluster.to_be_measured &&
                         (run.is_trial ? tried_before(directory, run) : finished_before(directory, run)).has_value();
    to_do.push_back(is_made ? 0 : 1);
  }
  return to_do;
}

std::string plan_text(const RunPlan& work, const std::string& noun) {
  std::string text = fmt::format("{} {}{}", work.runs, noun, work.runs == 1 ? "" : "s");
  if (work.finished > 0) text += fmt::format(", {} finished", work.finished);
  if (work.later > 0) text += fmt::format(", then {} run{}", work.later, work.later == 1 ? "" : "s");
  if (work.finished == work.runs && work.later == 0) return text;
  if (!work.division.empty()) text += fmt::format(", {}", work.division);
  if (!work.cost && !work.bytes)
    return text + "; how long they take, and how much space, is not known before some are finished";
  if (!work.cost)
    return text + fmt::format("; how long they take is not known before some are finished; {} on the disk",
                              size_text(*work.bytes));
  return text + fmt::format("; {} on this machine, by {}; {} on the disk", about(work.cost->host_s / work.side_by_side),
                            work.is_measured ? "the first's first steps" : "finished runs",
                            size_text(work.cost->bytes));
}

std::optional<RunCost> expected_cost(const Run& run, std::span<const KnownCost> known) {
  std::vector<const KnownCost*> alike, of_method;
  for (const KnownCost& one : known) {
    if (one.kind != run.timing_class) continue;
    alike.push_back(&one);
    if (one.method == run.method) of_method.push_back(&one);
  }
  if (!of_method.empty()) alike = of_method;
  if (alike.empty()) return {};
  double micro_batches = 0, steps = 0, fixed_bytes = 0;
  RunCost sum;
  for (const KnownCost* one : alike) {
    micro_batches += one->micro_batches;
    steps += static_cast<double>(one->steps);
    sum.host_s += one->cost.host_s;
    sum.bytes += one->cost.bytes;
    fixed_bytes += one->fixed_bytes;
  }
  const auto planned = planned_micro_batches(run);
  const auto number = static_cast<double>(alike.size());
  if (!planned || micro_batches == 0) return RunCost{.host_s = sum.host_s / number, .bytes = sum.bytes / number};
  return RunCost{.host_s = sum.host_s / micro_batches * *planned,
                 .bytes = fixed_bytes / number +
                          (sum.bytes - fixed_bytes) / steps * static_cast<double>(planned_steps(run)->value())};
}

MemoryNeed memory_need(const Run& run, const MemoryOptions& options) {
  MemoryNeed need{.program = program_bytes(run.training.trains_network)};
  need.records = record_bytes(run, options.is_mpi_rank);
  need.workers = options.is_mpi_rank ? 0 : worker_bytes(run);
  if (!trains(run)) return need;
  const ObjectiveMemory& objective = run.training.memory;
  need.is_complete = objective.is_known;
  need.data = static_cast<double>(objective.data_bytes);
  need.vectors = vectors_of(run, options);
  need.models = need.vectors * vector_bytes(run);
  const int threads = options.is_mpi_rank ? 1 : options.threads;
  need.passes = threads * static_cast<double>(objective.pass_bytes);
  return need;
}

LargestNeed largest_need(std::span<const Run* const> runs, const MemoryOptions& options) {
  MemoryOptions coarse = options;
  coarse.worker_steps = 0;
  std::map<std::string, std::pair<double, const Run*>> of_methods;
  for (const Run* run : runs) {
    auto& [most, largest] = of_methods[run->method];
    const double bytes = memory_need(*run, coarse).total();
    if (!largest || bytes > most) most = bytes, largest = run;
  }
  MemoryOptions fine = options;
  fine.worker_steps /= std::max<std::int64_t>(1, std::ssize(of_methods) / 4);  // a second or two in all
  LargestNeed result;
  for (const auto& [method, candidate] : of_methods) {
    const MemoryNeed need = memory_need(*candidate.second, fine);
    if (!result.run || need.total() > result.need.total()) result = {candidate.second, need};
  }
  return result;
}

double stack_room(std::span<const Run> runs) {
  double most = 0;
  for (const Run& run : runs) {
    const double each = run.cluster.workers <= most_guarded_stacks ? guarded_stack_bytes : dense_stack_bytes;
    most = std::max(most, each * std::min(run.cluster.workers, most_own_stacks));
  }
  return most;
}

std::string memory_text(double bytes, int digits) { return fmt::format("{:.{}g} GiB", bytes / (1 << 30), digits); }

std::string parts_text(const Run& run, const MemoryNeed& need, int threads) {
  std::string parts;
  const auto add = [&](const std::string& what, double bytes) {
    if (bytes >= 0.01 * need.total())
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", what, memory_text(bytes));
  };
  const auto parameters = static_cast<double>(run.training.parameter_bytes.value()) / sizeof(float);
  add(fmt::format("models, optimizer states and gradients ({:.0f} times {:.3g} parameters)", need.vectors, parameters),
      need.models);
  add(fmt::format("what {} thread{} computing gradients hold{}", threads, threads == 1 ? "" : "s",
                  threads == 1 ? "s" : ""),
      need.passes);
  add("data", need.data);
  add(fmt::format("{} simulated workers", run.cluster.workers), need.workers);
  add("rows", need.records);
  add("program", need.program);
  return parts + (need.is_complete ? "" : "; what the module's own layers hold is not known");
}

MemoryProbe probe_memory(const Run& run, std::int64_t worker_steps) {
  const std::int64_t per_step = run.cluster.workers * (1 + run.cluster.micro_batches / 16);
  const Step steps{std::max<std::int64_t>(2, worker_steps / per_step)};
  Run part = run;
  part.training.start = nullptr;
  part.measurements = {};
  const bool is_whole = part.budget.steps && *part.budget.steps <= steps;
  part.budget.steps = std::min(part.budget.steps.value_or(steps), steps);
  peak_of(part, small_size);  // for allocations that happen once
  const Peak large = peak_of(part, large_size), small = peak_of(part, small_size);
  const double vectors =
      (large.bytes - small.bytes) / (sizeof(float) * static_cast<double>(large.parameters - small.parameters));
  return {.vectors = std::max(1.0, vectors), .is_whole = is_whole};
}

}  // namespace syncopate
