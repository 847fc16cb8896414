#include "experiments/execution/cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <set>
#include <system_error>
#include <utility>

#include "results/found_runs.hpp"
#include "results/progress.hpp"
#include "results/run.hpp"
#include "results/run_directory.hpp"
#include "results/summary.hpp"
#include "workers/base/files.hpp"
#include "workers/base/machine.hpp"
#include "workers/base/process.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {

namespace {

constexpr double set_up_s = 1;         // less than this, and what libraries do first may be most of it
constexpr double long_enough_s = 0.3;  // of the steps by which two samples differ
constexpr double clear_share = 0.25;   // of the smaller sample, most of which may be evaluations, that vary
constexpr double at_most_s = 10;       // of all samples that are told apart so far

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

// The first steps of the run, up to about this share of its budget, of which there may be none; nothing if they fail.
std::optional<Sample> sample_of(const Run& run, double share, const Machinery& machinery) {
  Run part = run;
  cut(part.budget, share);
  Progress progress(Progress::Style::silent, 1, 1);
  const Outcome outcome = execute(part, machinery, progress, [](const Outcome&) {});
  const RunSummary summary = summarise(part, outcome);
  if (summary.status != RunStatus::finished) return {};
  double bytes = 0;
  for (const auto& [name, contents] : files_of(part, outcome, summary, machinery))
    bytes += static_cast<double>(contents.size());
  return Sample{.share = share_of(run.budget, summary),
                .steps = summary.steps,
                .cost = {.host_s = outcome.host_s, .bytes = bytes}};
}

// A line through both: what all of the budget takes, and what the two evaluations at the beginning and the end take
// with all that is done once.
struct Line {
  double all = 0, fixed = 0;
};
Line line_through(const Sample& a, const Sample& b, double RunCost::*of) {
  const double all = std::max(0.0, (b.cost.*of - a.cost.*of) / (b.share - a.share));
  return {.all = all, .fixed = std::max(0.0, a.cost.*of - all * a.share)};
}

// What one of [measurements] takes, by the first steps with and without the one before them.
double measurement_s(const Run& run, double share, const Machinery& machinery) {
  if (run.measurements.every_steps == Step{}) return 0;
  Run without = run;
  without.measurements = {};
  const auto with_it = sample_of(run, share, machinery), without_it = sample_of(without, share, machinery);
  if (!with_it || !without_it || with_it->steps == 0) return 0;
  const auto measured = 1 + with_it->steps / run.measurements.every_steps.value();
  return std::max(0.0, with_it->cost.host_s - without_it->cost.host_s) / static_cast<double>(measured);
}

// How often something is done along the run beside its beginning and its end.
double times_along(const Run& run, double steps) {
  if (run.evaluation.every_duration > Duration{} && run.budget.seconds)
    return *run.budget.seconds / to_seconds(run.evaluation.every_duration);
  return steps / static_cast<double>(std::max<std::int64_t>(1, run.evaluation.every_steps.value()));
}

KnownCost extrapolated(const Run& run, const Sample& before, const Sample& last, double measurement_s) {
  const double steps = static_cast<double>(last.steps) / last.share;
  const Line time = line_through(before, last, &RunCost::host_s), space = line_through(before, last, &RunCost::bytes);
  const double measurements =
      measurement_s > 0 ? 1 + steps / static_cast<double>(run.measurements.every_steps.value()) : 0;
  return {.kind = run.work_kind,
          .method = run.method,
          .steps = std::llround(steps),
          .micro_batches = steps * run.cluster.workers * run.cluster.micro_batches,
          .cost = {.host_s = time.all + time.fixed / 2 * (2 + times_along(run, steps)) + measurement_s * measurements,
                   .bytes = space.all + space.fixed},
          .fixed_bytes = space.fixed};
}

}  // namespace

std::optional<KnownCost> measured_cost(const Run& run, const Machinery& machinery) {
  const std::optional<Step> planned = planned_steps(run);
  constexpr std::int64_t shortest = 64;  // the first 21 of them are made
  if (machinery.together() || (planned && planned->value() < shortest)) return {};
  try {
    constexpr double smallest_share = 1.0 / 4096;  // of a budget that does not count steps
    Run unmeasured = run;
    unmeasured.measurements = {};
    std::optional<Sample> before, last;
    double spent_s = 0;
    bool is_first = true;
    const double first = planned ? 1.0 / static_cast<double>(planned->value()) : smallest_share;
    for (double share = first; share <= 0.25; share *= 4) {
      const std::optional<Sample> sample = sample_of(unmeasured, share, machinery);
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
    return extrapolated(run, *before, *last, measurement_s(run, before->share, machinery));
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception&) {  // the run itself says so
    return {};
  }
}

namespace {

// Two digits: an estimate has no more.
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

bool tried_or_finished(const std::filesystem::path& directory, const Run& run) {
  return (run.is_trial ? tried_before(directory, run) : finished_before(directory, run)).has_value();
}
}  // namespace

PlannedWork planned_work(std::span<const Run* const> to_do, std::vector<KnownCost> known, const MeasureCost& measure) {
  PlannedWork work;
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

PlannedWork plan_of(std::span<const Run> runs, std::span<const int> to_do, std::span<const Run> later,
                    const std::filesystem::path& results, bool mpi, const MeasureCost& measure) {
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
  PlannedWork work =
      planned_work(missing, known_costs(experiment_directory(results, runs.front().experiment), mpi), measure);
  work.runs = runs.size();
  work.finished = finished;
  work.later = later.size();
  if (!work.cost) work.bytes = planned_bytes(missing, mpi);
  return work;
}

std::vector<int> runs_to_do(std::span<const Run> runs, const std::filesystem::path& results, bool mpi) {
  std::vector<int> to_do;
  for (const Run& run : runs)
    to_do.push_back(run.cluster.to_be_measured || !tried_or_finished(run_directory(results, run, mpi), run) ? 1 : 0);
  return to_do;
}

std::string plan_text(const PlannedWork& work, const std::string& noun) {
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
