#include "experiments/execution/run_cost.hpp"

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include "results/directory/summary_json.hpp"
#include "results/formats/host.hpp"
#include "results/formats/json.hpp"
#include "results/run/work_kind.hpp"
#include "workers/files/own_file.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_runs_read = 200;            // a tenth of a second
constexpr std::uintmax_t longest_summary = 1'000'000;  // that of some ten thousand workers, which takes as long

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

struct Size {
  double all = 0, fixed = 0;
};

// Tables and traces have rows for steps.
Size size_of(const fs::path& directory) {
  Size size;
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

double integer_at(const TomlNode& table, const char* key) {
  const TomlNode* node = table.find(key);
  const auto* number = node ? std::get_if<std::int64_t>(&node->value) : nullptr;
  return number ? static_cast<double>(*number) : 1;
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
  const Size size = size_of(directory);
  return KnownCost{.kind = work_kind(document),
                   .method = summary->method,
                   .steps = summary->steps,
                   .micro_batches = static_cast<double>(summary->steps) * integer_at(*cluster, "workers") *
                                    integer_at(*cluster, "micro_batches"),
                   .cost = {.host_s = summary->host_s, .bytes = size.all},
                   .fixed_bytes = size.fixed};
}

}  // namespace

std::vector<KnownCost> known_costs(const fs::path& experiment_directory, bool mpi) {
  std::vector<KnownCost> known;
  for (const fs::path& directory : some_run_directories(experiment_directory, mpi)) {
    try {
      if (auto cost = read_cost(directory)) known.push_back(std::move(*cost));
    } catch (const std::exception&) {  // a damaged file, or a run that is being written
    }
  }
  return known;
}

std::optional<double> planned_bytes(std::span<const Run* const> runs, bool mpi) {
  // Of a row in a file, as it is or compressed, and of files that every run has.
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

std::optional<double> planned_micro_batches(const Run& run) {
  const std::optional<Step> steps = planned_steps(run);
  if (!steps) return {};
  return static_cast<double>(steps->value()) * run.cluster.workers * run.cluster.micro_batches;
}

std::optional<RunCost> expected_cost(const Run& run, std::span<const KnownCost> known) {
  std::vector<const KnownCost*> alike, of_method;
  for (const KnownCost& one : known) {
    if (one.kind != run.work_kind) continue;
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

}  // namespace syncopate
