#include "experiments/execution/memory_need.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <fstream>
#include <map>
#include <optional>
#include <vector>

#include "experiments/execution/rehearsal.hpp"
#include "results/rows/recording.hpp"
#include "results/run/run_label.hpp"
#include "workers/cluster/run_record.hpp"
#include "workers/models/torch_library.hpp"
#include "workers/process/interrupt.hpp"

namespace syncopate {
namespace {

constexpr double least_program_bytes = 20e6;  // more than it is, so that small experiments all say the same
constexpr double library_bytes = 170e6;       // of LibTorch 1.13 with OpenBLAS once a first gradient has been computed
constexpr double simulated_worker_bytes = 30e3;         // tests/README.md: 28 to 31 KB, with a model
constexpr double time_only_worker_bytes = 6.5e3;        // on a stack of its own
constexpr double worker_on_shared_stack_bytes = 3.2e3;  // in turn with others
constexpr double worker_in_lockstep_bytes = 0.6e3;
constexpr double row_text_bytes = 100;     // of a row in a file, which is put together in memory
constexpr int most_own_stacks = 8192;      // of SimulatedOptions
constexpr int most_guarded_stacks = 1024;  // of StackPool, as the next two
constexpr double guarded_stack_bytes = 132 * 1024;
constexpr double dense_stack_bytes = 33 * 1024;
constexpr int most_rehearsed_workers = 1024;

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double size = 0, pages = 0;
  file >> size >> pages;
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

// When it is first asked: what rehearsals leave behind is used again, and LibTorch may be loaded between two questions.
double program_bytes(bool trains_network) {
  static const double resident = std::max(resident_bytes(), least_program_bytes);
  static const bool has_library = torch_is_loaded();
  return trains_network && !has_library ? resident + library_bytes : resident;
}

bool trains(const Run& run) { return !run.training.time_only && run.training.parameter_bytes > Bytes{0}; }

double vector_bytes(const Run& run) {
  return static_cast<double>(run.training.parameter_bytes.value()) +
         static_cast<double>(sizeof(float)) * static_cast<double>(run.training.memory.buffers);
}

// If each had a model of its own where its method allows it.
double most_vectors(const Run& run) {
  const double state = 1 + run.training.optimizer->moments();
  const Traits traits = run.algorithm->traits();
  return traits.sums_gradients ? 2 * state : run.cluster.workers * state + 2 * state;
}

std::optional<Rehearsed> rehearsed(const Run& run, std::int64_t worker_steps) {
  if (worker_steps <= 0 || run.cluster.workers > most_rehearsed_workers || run.cluster.to_be_measured) return {};
  try {
    const Rehearsed found = rehearse(run, worker_steps);
    return found.vectors > 1 ? std::optional(found) : std::nullopt;
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception&) {  // the run itself says so
    return {};
  }
}

// Whether later steps may be of another kind than the first ones: local steps after common ones.
bool may_part_later(const Run& run) {
  const Traits traits = run.algorithm->traits();
  return !traits.sums_gradients && traits.servers == 0;
}

// What the allocator holds beside: each thread takes memory from an arena of its own, and blocks that have been free are
// cut up. Where models come and go with every exchange that is much, where they are updated in place little. Measured on
// an MLP of 1.9 million parameters with 1 and 2 threads; for more threads a guess.
double slack(const Run& run, int threads) {
  const Traits traits = run.algorithm->traits();
  const bool stay = traits.sums_gradients || traits.averages_models || traits.publishes_rounds;
  return stay ? 0.1 : std::min(1.0, 0.5 * threads);
}

double vectors_of(const Run& run, const MemoryOptions& options) {
  const double state = 1 + run.training.optimizer->moments();
  if (options.is_mpi_rank) return 2 * state + 3;  // its own, what is averaged or sent, and an evaluation's
  const auto found = rehearsed(run, options.worker_steps);
  double vectors = found ? found->vectors : most_vectors(run);
  if (found && !found->is_whole && may_part_later(run)) vectors = std::max(vectors, most_vectors(run));
  const double of_all = 2 * state;  // what is there once, whoever has the workers
  const int largest_block = (run.cluster.workers + options.dividing - 1) / options.dividing;
  vectors = std::max(std::min(vectors, of_all), vectors * largest_block / run.cluster.workers);
  vectors *= 1 + slack(run, options.threads);
  // Evaluations go on beside the next steps, which then cannot take place in the model's own memory; and each thread
  // has a gradient under way.
  return vectors + state + options.threads;
}

double worker_bytes(const Run& run) {
  const auto each = [&] {
    if (trains(run)) return simulated_worker_bytes;
    if (run.same_course_from() == Step{0}) return worker_in_lockstep_bytes;
    return run.cluster.workers <= most_own_stacks ? time_only_worker_bytes : worker_on_shared_stack_bytes;
  };
  return each() * run.cluster.workers;
}

// Vectors grow by doubling, and a file's text stands beside them.
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

}  // namespace

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
  const auto at_most = [&](const Run& run) {
    MemoryOptions coarse = options;
    coarse.worker_steps = 0;
    return memory_need(run, coarse).total();
  };
  std::map<std::string, std::pair<double, const Run*>> of_methods;
  for (const Run* run : runs) {
    auto& [most, largest] = of_methods[run->method];
    const double bytes = at_most(*run);
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

}  // namespace syncopate
