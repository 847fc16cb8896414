#include "experiments/execution/planned_work.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "results/directory/finished_run.hpp"
#include "results/directory/run_directory.hpp"

namespace syncopate {
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

}  // namespace

namespace {
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

}  // namespace syncopate
