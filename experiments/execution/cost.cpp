#include "experiments/execution/cost.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <fstream>
#include <set>

#include "results/found_runs.hpp"
#include "workers/base/files.hpp"
#include "workers/base/machine.hpp"
#include "workers/models/torch_library.hpp"

namespace syncopate {

namespace {

namespace fs = std::filesystem;

bool trains(const Run& run) { return !run.training.time_only && run.training.parameter_bytes > Bytes{0}; }

// Returns the number of steps of the budget; 0 if unknown. For a budget in seconds, it is the number of steps of a
// worker that never waits.
double steps_of(const Run& run) {
  if (const auto planned = planned_steps(run)) return static_cast<double>(planned->value());
  if (!run.budget.seconds || !run.cluster.compute_time) return 0;
  const double step_s = run.cluster.compute_time->step_law(Rank{0}, run.cluster.micro_batches).mean_s;
  return step_s > 0 ? std::floor(*run.budget.seconds / step_s) : 0;
}

// The quantities of a run on which all estimates are based.
struct Numbers {
  explicit Numbers(const Run& run)
      : workers(run.cluster.workers),
        steps(steps_of(run)),
        micro_batches(steps * workers * run.cluster.micro_batches),
        evaluations(2 + steps / static_cast<double>(std::max<Step::Rep>(1, run.evaluation.every_steps.value()))),
        spans(run.recording.trace ? std::min(static_cast<double>(run.recording.trace_events), 3 * micro_batches) : 0),
        vector_bytes(static_cast<double>(run.training.parameter_bytes.value()) +
                     static_cast<double>(sizeof(float)) * static_cast<double>(run.training.memory.buffers)),
        moments(run.training.optimizer ? run.training.optimizer->moments() : 0) {}

  double workers;
  double steps;          // 0: the budget does not determine the number of steps
  double micro_batches;  // total over all workers and steps
  double evaluations;
  double spans;  // spans of the trace
  double vector_bytes;
  double moments;
};

// --- Time ---

// Returns the time of the run in the directory. Returns nullopt if it has not finished, ran on a different kind of
// processor, or is very large. Throws if the directory is damaged or being written.
std::optional<KnownTime> time_in(const fs::path& directory) {
  constexpr std::uintmax_t longest_summary = 1'000'000;  // in bytes; about ten thousand workers
  static const std::string processor = processor_name();
  if (fs::file_size(directory / "summary.json") > longest_summary) return {};
  const auto summary = summary_from_json(read_file(directory / "summary.json").value());
  if (!summary || summary->status != RunStatus::finished || summary->steps == 0) return {};
  if (Json::parse(read_file(directory / "metadata.json").value()).value("processor", "") != processor) return {};
  return KnownTime{.kind = timing_class(parse_toml(read_file(directory / "config.toml").value(), "config.toml")),
                   .method = summary->method,
                   .micro_batches = static_cast<double>(summary->kept_micro_batches + summary->dropped_micro_batches),
                   .host_s = summary->host_s};
}

// Returns the times of finished runs. If there are very many, reads an evenly spaced selection.
std::vector<KnownTime> known_times(const fs::path& experiment_directory, bool mpi) {
  constexpr std::size_t most_runs_read = 200;  // reading this number takes a tenth of a second
  std::vector<fs::path> finished;
  for (const ExperimentFolder& folder : experiment_folders(experiment_directory))
    std::ranges::copy_if(folder.runs, std::back_inserter(finished),
                         [mpi](const fs::path& run) { return run.filename().string().ends_with("-mpi") == mpi; });
  std::vector<KnownTime> known;
  for (std::size_t i = 0; i < finished.size(); i += finished.size() / most_runs_read + 1) {
    try {
      if (const auto time = time_in(finished[i])) known.push_back(*time);
    } catch (const std::exception&) {
    }
  }
  return known;
}

// Returns the time as text, with two digits, since it is an estimate.
std::string about(double seconds) {
  if (seconds < 1) return "less than a second";
  if (seconds < 99.5) return fmt::format("about {:.2g} s", seconds);
  if (seconds < 99.5 * 60) return fmt::format("about {:.2g} min", seconds / 60);
  const double hours = seconds / 3600;
  return hours < 99.5 ? fmt::format("about {:.2g} h", hours) : fmt::format("about {:.0f} h", hours);
}

// --- Memory ---

constexpr int most_own_stacks = 8192;      // as in SimulatedOptions
constexpr int most_guarded_stacks = 1024;  // this and the next two constants as in StackPool
constexpr double guarded_stack_bytes = 132 * 1024;
constexpr double dense_stack_bytes = 33 * 1024;

// Returns the bytes that are resident before a run begins. They are measured at the first call only, because LibTorch
// may be loaded later.
double program_bytes(bool trains_network) {
  static constexpr double least = 15e6;    // slightly more than the real size, so that outputs are reproducible
  constexpr double library_bytes = 170e6;  // LibTorch 1.13 with OpenBLAS after a first gradient
  static const double resident = [] {
    std::ifstream file("/proc/self/statm");
    double size = 0, pages = 0;
    file >> size >> pages;
    return std::max(pages * static_cast<double>(sysconf(_SC_PAGESIZE)), least);
  }();
  static const bool has_library = torch_is_loaded();
  return trains_network && !has_library ? resident + library_bytes : resident;
}

// Returns the number of vectors per worker for compressed exchanges. These are residuals (values that the worker has
// not sent yet), a packet that is being sent, and one that is being received. Does not count rows of embeddings,
// because their number is small and not known in advance.
double compression_vectors(const Run& run) {
  if (!run.algorithm->compression()) return 0;
  const KnownExchanges known = known_exchanges(run);
  std::vector<Exchange> exchanges = known.all.empty() ? known.of_average : known.all.back().exchanges;
  if (known.packet) exchanges.push_back({.packet = *known.packet});
  double packets = 0;
  for (const Exchange& exchange : exchanges) packets += static_cast<double>(exchange.packet.value());
  const double kept = known.all.empty() ? 1.0 : static_cast<double>(known.all.back().vectors);
  return kept + 2 * packets / static_cast<double>(run.training.parameter_bytes.value());
}

double vectors_of(const Run& run, const MemoryUse& use) {
  const Numbers numbers(run);
  const Traits traits = run.algorithm->traits();
  const double state = 1 + numbers.moments;
  const double workers = use.is_mpi_rank ? 1 : std::ceil(numbers.workers / use.dividing);
  // The current and the next state of workers or servers (2 each); a sum and a gradient (2).
  double vectors = (2 + traits.held.states) * state + 2;
  double own = traits.held.models + traits.held.moments * numbers.moments + compression_vectors(run);
  // Models in messages are often allocated and released, and may wait for a free thread. In addition, the memory arena
  // that the allocator has for each thread keeps released models.
  if (!traits.sums_gradients && !traits.averages_models && !traits.publishes_rounds)
    own *= (traits.sends_gradients ? 1.4 : 1) + 0.4 * (use.threads - 1);
  vectors += own * workers;
  // Evaluations of the model run in parallel with the next steps. So these steps cannot update it in place.
  vectors += state;
  vectors += use.threads;
  // Buffers for sums and parts of sums that are sent to other processes and received from them.
  if (use.dividing > 1) vectors += 4;
  return vectors;
}

// Returns the bytes of a simulated worker without its vectors: its stack and accounts.
double worker_bytes(const Run& run) {
  if (trains(run)) return 30e3;  // 28 to 31 KB with a model (tests/README.md)
  if (run.lockstep_from_step() == Step{0}) return 0.5e3;
  if (run.cluster.workers > most_own_stacks) return 3.2e3;  // workers take turns on one stack
  // With guarded stacks only touched pages are resident. Other stacks are in huge pages, which are resident as a whole.
  return run.cluster.workers > most_guarded_stacks ? dense_stack_bytes : 6.5e3;
}

// Returns the bytes of rows. Vectors grow by doubling, which takes up to twice their size. In addition, the text of a
// file is in memory when it is written, with about 100 bytes per row.
double record_bytes(const Run& run, bool mpi) {
  const Numbers numbers(run);
  const auto rows = [](double count, std::size_t size) { return count * (2 * static_cast<double>(size) + 100); };
  double bytes = rows(numbers.steps, sizeof(StepRow)) + rows(numbers.evaluations, sizeof(MetricsRow));
  if (mpi) bytes += numbers.evaluations * numbers.vector_bytes;  // models to evaluate are kept until the run's end
  if (run.recording.records_durations(mpi)) bytes += rows(numbers.micro_batches, sizeof(MicroBatchTime));
  if (run.recording.arrivals) bytes += rows(numbers.steps * numbers.workers, sizeof(GradientArrival));
  // Times that workers record for a threshold search. Vectors grow by doubling (2), and are copied once at the search's
  // end (1).
  const double timed = static_cast<double>(run.algorithm->traits().held.timed_steps.value());
  bytes += 3 * sizeof(double) * timed * run.cluster.micro_batches * (mpi ? 1 : numbers.workers);
  // The sample of times for predictions by formula has at most a million elements.
  if (run.algorithm->traits().has_formulas && !run.cluster.outages && !run.cluster.pauses && !mpi)
    bytes += sizeof(double) * std::min(1e6, most_sampled_steps * numbers.workers * run.cluster.micro_batches);
  return bytes + rows(numbers.spans, sizeof(Span));
}

}  // namespace

std::optional<double> time_by_finished_runs(const Run& run, std::span<const KnownTime> known) {
  const double planned = Numbers(run).micro_batches;
  std::vector<double> times_s, of_method_s;
  for (const KnownTime& one : known) {
    if (one.kind != run.timing_class) continue;
    times_s.push_back(planned > 0 ? one.host_s / std::max(1.0, one.micro_batches) * planned : one.host_s);
    if (one.method == run.method) of_method_s.push_back(times_s.back());
  }
  if (!of_method_s.empty()) times_s = of_method_s;
  if (times_s.empty()) return {};
  // The median, because runs that were suspended, or ran beside other programs, may have taken many times as long.
  std::ranges::sort(times_s);
  return (times_s[(times_s.size() - 1) / 2] + times_s[times_s.size() / 2]) / 2;
}

std::optional<double> time_by_arithmetic(const Run& run, int threads, std::optional<double> micro_batch_s) {
  // Typical rates of one core and its memory, and the simulation's costs per worker and step (tests/README.md).
  constexpr double operations_per_s = 75e9, bytes_per_s = 10e9, fiber_s = 0.4e-6, lockstep_s = 0.05e-6, drawn_s = 5e-9;
  const Numbers numbers(run);
  if (numbers.steps == 0) return {};
  const double worker_s = run.lockstep_from_step() == Step{0} ? lockstep_s : fiber_s;
  const double simulation_s = worker_s * numbers.steps * numbers.workers + drawn_s * numbers.micro_batches;
  if (!trains(run)) return simulation_s;
  const ObjectiveMemory& objective = run.training.memory;
  const bool is_on_processor = run.training.arithmetic.is_processor();
  if ((!objective.is_known || !is_on_processor) && !micro_batch_s) return {};
  // A gradient takes as long as three forward passes.
  const double forwards = 3 * static_cast<double>(run.training.samples_per_micro_batch);
  const double counted_s = 2 * objective.multiply_adds / operations_per_s;
  const double gradient_s = micro_batch_s.value_or(forwards * counted_s);
  const double forward_s = is_on_processor ? counted_s : gradient_s / forwards;
  const double evaluated = static_cast<double>(objective.test_samples + run.evaluation.train_samples);
  // A step reads parameters, gradient and moments, and writes parameters and moments. Workers with own models each do
  // so.
  const HeldVectors held = run.algorithm->traits().held;
  const double descents = numbers.steps * (held.models >= 1 ? numbers.workers : 1);
  const double descent_s = (3 + 2 * numbers.moments) * numbers.vector_bytes / bytes_per_s;
  // All threads share one device, but each has a core of the processor.
  const double passes_s = numbers.micro_batches * gradient_s + numbers.evaluations * evaluated * forward_s;
  return simulation_s + passes_s / (is_on_processor ? threads : 1) + descents * descent_s / threads;
}

std::optional<double> disk_bytes(const Run& run, bool mpi) {
  // Bytes of a row of steps.csv, an evaluation, a row of a compressed file, a span, a run's other files, and a worker's
  // entry.
  constexpr double row = 40, evaluation = 110, zipped_row = 9, span = 12, files = 8000, of_worker = 95;
  const Numbers numbers(run);
  if (numbers.steps == 0) return {};
  double bytes = files + of_worker * numbers.workers + row * numbers.steps + evaluation * numbers.evaluations;
  if (run.recording.parameters) bytes += static_cast<double>(run.training.parameter_bytes.value());
  if (run.recording.records_durations(mpi)) bytes += zipped_row * numbers.micro_batches;
  if (run.recording.arrivals) bytes += zipped_row * numbers.steps * numbers.workers;
  return bytes + span * numbers.spans;
}

RunPlan plan_of(std::span<const Run> runs, std::span<const int> to_do, std::span<const Run> later,
                const PlanOptions& options) {
  RunPlan plan{.runs = runs.size(),
               .finished = static_cast<std::size_t>(std::ranges::count(to_do, 0)),
               .later = later.size(),
               .time_s = 0,
               .bytes = 0};
  std::vector<const Run*> missing;
  std::set<std::string> phases;
  const auto add = [&](const Run& run) {
    missing.push_back(&run);
    const Run* phase = run.common_phase.get();
    if (phase && phases.insert(phase->hash).second &&
        !finished_before(run_directory(options.results, *phase, options.mpi), *phase))
      missing.push_back(phase);
  };
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (to_do[i]) add(runs[i]);
  for (const Run& run : later) add(run);
  if (missing.empty()) return plan;

  const std::vector<KnownTime> known =
      known_times(experiment_directory(options.results, missing.front()->experiment), options.mpi);
  std::map<std::string, std::optional<double>> micro_batch_s;  // by kind of runs
  const auto time_of = [&](const Run& run) {
    std::optional<double> time_s = time_by_finished_runs(run, known);
    if (time_s || options.threads == 0) return time_s;
    plan.may_measure |= run.training.trains_network;
    std::optional<double> measured_s;
    if (options.measure && run.training.trains_network) {
      const auto [at, is_new] = micro_batch_s.try_emplace(run.timing_class);
      if (is_new) at->second = options.measure(run);
      measured_s = at->second;
    }
    plan.time_by = measured_s && plan.time_by != RunPlan::TimeBy::arithmetic ? RunPlan::TimeBy::micro_batches
                                                                             : RunPlan::TimeBy::arithmetic;
    return time_by_arithmetic(run, options.threads, measured_s);
  };
  for (const Run* run : missing) {
    const auto bytes = disk_bytes(*run, options.mpi);
    plan.bytes = plan.bytes && bytes ? std::optional(*plan.bytes + *bytes) : std::nullopt;
    const auto time_s = plan.time_s ? time_of(*run) : std::nullopt;
    plan.time_s = time_s ? std::optional(*plan.time_s + *time_s) : std::nullopt;
    if (time_s) plan.host_s[run->hash] = *time_s;
  }
  if (!plan.time_s) plan.host_s.clear();
  return plan;
}

std::vector<int> runs_to_do(std::span<const Run> runs, const fs::path& results, bool mpi) {
  std::vector<int> to_do;
  for (const Run& run : runs) {
    const bool is_made = !run.cluster.to_be_measured && finished_before(run_directory(results, run, mpi), run);
    to_do.push_back(is_made ? 0 : 1);
  }
  return to_do;
}

std::string size_text(double bytes) {
  constexpr std::array units = {"kB", "MB", "GB", "TB"};
  double size = bytes / 1000;
  std::size_t unit = 0;
  while (size >= 999.5 && unit + 1 < units.size()) {
    size /= 1000;
    ++unit;
  }
  return fmt::format("{} {}", size < 99.5 ? fmt::format("{:.2g}", size) : fmt::format("{:.0f}", size), units[unit]);
}

std::string plan_text(const RunPlan& plan, const std::string& noun) {
  std::string text = counted(plan.runs, noun);
  if (plan.finished > 0) text += fmt::format(", {} finished", plan.finished);
  if (plan.later > 0) text += fmt::format(", then {}", counted(plan.later, "run"));
  if (plan.finished == plan.runs && plan.later == 0) return text;
  if (!plan.division.empty()) text += fmt::format(", {}", plan.division);
  if (!plan.time_s && !plan.bytes) return text + "; time and disk space are unknown until some are finished";
  constexpr std::array sources = {"arithmetic", "the time of a micro-batch", "finished runs"};
  text += plan.time_s ? fmt::format("; {} on this machine, by {}", about(*plan.time_s / plan.side_by_side),
                                    sources[static_cast<std::size_t>(plan.time_by)])
                      : "; the time is unknown until some are finished";
  return text + (plan.bytes ? fmt::format("; about {} on the disk", size_text(*plan.bytes))
                            : "; the disk space is not known in advance");
}

MemoryNeed memory_need(const Run& run, const MemoryUse& use) {
  MemoryNeed need{.program = program_bytes(run.training.trains_network),
                  .workers = use.is_mpi_rank ? 0 : run.cluster.workers * worker_bytes(run),
                  .records = record_bytes(run, use.is_mpi_rank)};
  if (!trains(run)) return need;
  const ObjectiveMemory& objective = run.training.memory;
  need.is_complete = objective.is_known;
  need.data = static_cast<double>(objective.data_bytes);
  need.vectors = vectors_of(run, use);
  need.models = need.vectors * Numbers(run).vector_bytes;
  need.passes = (use.is_mpi_rank ? 1 : use.threads) * static_cast<double>(objective.pass_bytes);
  return need;
}

double stack_room(std::span<const Run> runs) {
  double most = 0;
  for (const Run& run : runs) {
    const double each = run.cluster.workers <= most_guarded_stacks ? guarded_stack_bytes : dense_stack_bytes;
    most = std::max(most, each * std::min(run.cluster.workers, most_own_stacks));
  }
  return most;
}

}  // namespace syncopate
