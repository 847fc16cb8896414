#include "experiments/execution/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "experiments/commands/commands.hpp"
#include "experiments/execution/cost.hpp"
#include "experiments/execution/tuning.hpp"
#include "results/run.hpp"
#include "workers/base/terminal_text.hpp"

namespace syncopate {

namespace {

MemoryOptions options_of(const MemoryUse& use) {
  return {.threads = use.threads, .dividing = use.dividing, .is_mpi_rank = use.is_mpi_rank};
}

// With the common phases that they start from.
void add(std::span<const Run> runs, std::span<const int> to_do, std::vector<const Run*>& all) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!to_do.empty() && !to_do[i]) continue;
    all.push_back(&runs[i]);
    if (runs[i].common_phase) all.push_back(runs[i].common_phase.get());
  }
}

// What would make the largest part smaller.
std::string advice(const MemoryNeed& need, const MemoryUse& use) {
  std::string text = need.models >= need.passes ? "fewer workers, a smaller model or an optimizer with fewer moments"
                                                : "smaller micro-batches or a smaller model";
  if (need.workers + need.records > need.models + need.passes) text = "fewer workers, steps or records";
  if (use.threads > 1 && need.passes > 0.1 * need.total())
    text += fmt::format(", fewer --threads than {}", use.threads);
  if (use.processes > 1) text += fmt::format(", fewer --jobs than {}", use.processes);
  if (use.processes == 1 && !use.is_mpi_rank && need.models >= need.passes)
    text += use.dividing > 1 ? fmt::format(", or more than {} processes that divide a run", use.dividing)
                             : ", or several processes that divide a run (mpirun, --cluster simulated)";
  return text;
}

}  // namespace

MemoryUse memory_use(const CommandLine& line, int ranks) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const bool is_rank =
      line.options.cluster == ClusterChoice::mpi || (line.options.cluster == ClusterChoice::automatic && ranks > 0);
  const int dividing = is_rank ? 1 : std::max(1, ranks);
  return {.threads = line.options.threads > 0 ? line.options.threads : std::max(1, cores / dividing),
          .is_mpi_rank = is_rank,
          .dividing = dividing,
          .limit_bytes = line.memory_bytes};
}

std::string memory_line(const Experiment& experiment, const MemoryUse& use) {
  const std::vector<Run> trials = experiment.tuning ? first_trials(experiment) : std::vector<Run>{};
  std::vector<const Run*> all;
  add(trials, {}, all);
  add(experiment.runs, {}, all);
  const LargestNeed largest = largest_need(all, options_of(use));
  if (!largest.run) return {};
  const std::string whose =
      use.dividing > 1 ? fmt::format("each of {} processes that divide a run", use.dividing) : "a process";
  return fmt::format("memory of {}: about {}, most of all for \"{}\": {}", whose, memory_text(largest.need.total()),
                     printable(run_label(largest.run->method, largest.run->sweep)),
                     parts_text(*largest.run, largest.need, use.threads));
}

void refuse_beyond_memory(const Experiment& experiment, const CommandLine& line, const MemoryUse& use) {
  if (use.limit_bytes == 0) return;
  const auto to_do = [&](std::span<const Run> runs) {
    return line.options.rerun ? std::vector<int>(runs.size(), 1)
                              : runs_to_do(runs, line.options.results_directory, use.is_mpi_rank);
  };
  const std::vector<Run> trials = experiment.tuning ? first_trials(experiment) : std::vector<Run>{};
  std::vector<const Run*> all;
  add(trials, to_do(trials), all);
  // Which runs are finished is not known before all is tuned.
  add(experiment.runs, experiment.tuning ? std::vector<int>{} : to_do(experiment.runs), all);
  const LargestNeed largest = largest_need(all, options_of(use));
  const double limit = static_cast<double>(use.limit_bytes) / use.processes;
  if (!largest.run || largest.need.total() <= limit) return;
  int digits = 2;  // until one sees which is larger
  while (digits < 9 && memory_text(largest.need.total(), digits) == memory_text(limit, digits)) ++digits;
  const std::string divided = use.processes > 1
                                  ? fmt::format(" of {} that {} processes divide",
                                                memory_text(static_cast<double>(use.limit_bytes)), use.processes)
                                  : "";
  throw ConfigurationFault(
      fmt::format("{}: \"{}\" needs about {}: {}; --memory leaves a process {}{}; must be more, or the need less: {}",
                  line.file, printable(run_label(largest.run->method, largest.run->sweep)),
                  memory_text(largest.need.total(), digits), parts_text(*largest.run, largest.need, use.threads),
                  memory_text(limit, digits), divided, advice(largest.need, use)));
}

namespace {

// Of "b", "k", "kb", "ki", "kib", and so on; 0: there is no such unit.
double unit_bytes(std::string unit) {
  if (unit.ends_with('b')) unit.pop_back();
  if (unit.empty()) return 1;
  const std::size_t power = std::string_view("kmgtpe").find(unit.front());
  if (power == std::string_view::npos || (unit.size() > 1 && unit.substr(1) != "i")) return 0;
  return std::pow(unit.size() > 1 ? 1024.0 : 1000.0, static_cast<double>(power + 1));
}

}  // namespace

std::optional<std::int64_t> memory_size(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc{}) return {};
  std::string unit;
  for (const char letter : std::string_view(after, end))
    if (letter != ' ' || !unit.empty()) unit += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  const double bytes = number * unit_bytes(unit);
  if (!(bytes >= 1 && bytes < 0x1p63)) return {};
  return static_cast<std::int64_t>(bytes);
}

}  // namespace syncopate
