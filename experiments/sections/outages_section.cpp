#include "experiments/sections/outages_section.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "workers/delays/limits.hpp"

namespace syncopate {
namespace {

constexpr Range from_zero{.low = 0, .high = longest_delay};
constexpr double shortest_mean_s = 1e-6;
constexpr Range means = Range::between(shortest_mean_s, longest_delay);
constexpr Range positive{.low = 0, .high = longest_delay, .low_open = true};

// An entry says when its outage is, or how often there is one.
bool is_random(Settings& table) {
  const bool scheduled = table.has("at_s") || table.has("duration_s");
  const bool random = table.has("mean_time_between_s") || table.has("mean_duration_s");
  if (scheduled && random) {
    const char* const other = table.has("mean_time_between_s") ? "mean_time_between_s" : "mean_duration_s";
    table.fault(other, "must not be given together with at_s or duration_s: an outage is scheduled or random");
  }
  return random && !scheduled;
}

// What outages that take its state let through is begun e^(its time / the mean time between them) times on average, e^8
// at most. What delays with a heavy tail make of single micro-batches is known only when they are drawn: see
// most_restarts.
constexpr double most_losses = 8;
// Of those that keep it, a mean micro-batch may meet so many.
constexpr double most_breaks = 1000;

// `what` takes `time_s`, which may meet `most` outages on average.
void check_frequency(Settings& table, const RandomOutages& outages, double time_s, double most,
                     const std::string& what) {
  const double least_s = std::max(shortest_mean_s, time_s / most);
  if (outages.mean_time_between_s >= least_s) return;
  table.fault(
      "mean_time_between_s",
      fmt::format("must be at least {:g} s, 1/{} of {}: the run would make hardly any progress", least_s, most, what));
}

void check_frequency(Settings& table, const RandomOutages& outages, bool loses_state, double micro_batch_s) {
  if (loses_state)
    check_frequency(table, outages, micro_batch_s, most_losses, "a micro-batch's time, where the state is lost");
  else
    check_frequency(table, outages, micro_batch_s, most_breaks, "a micro-batch's time");
}

OutageEntry read_entry(Settings& table, int most_rank, double micro_batch_s) {
  OutageEntry entry;
  const std::size_t faults_before = table.faults_so_far();
  const bool random = is_random(table);
  if (!random || table.has("workers")) {
    const std::size_t faults = table.faults_so_far();
    for (const std::int64_t rank : table.integers({"workers", "The workers that are down.", "", "all"}, 0,
                                                  Stated(most_rank, "cluster.workers - 1")))
      entry.workers.emplace_back(static_cast<int>(rank));
    if (entry.workers.empty() && table.faults_so_far() == faults)
      table.fault("workers", "must name at least one worker");
  }
  if (random) {
    const Key between{"mean_time_between_s", "Mean time from the end of an outage to the next one, exponential.", "s",
                      "the outage is scheduled"};
    const Key duration{"mean_duration_s", "Mean length of an outage, exponential.", "s", "the outage is scheduled"};
    entry.when = RandomOutages{.mean_time_between_s = table.number(between, means),
                               .mean_duration_s = table.number(duration, means)};
  } else {
    const double at_s =
        table.number({"at_s", "When a scheduled outage begins, since the start of the run.", "s"}, from_zero);
    const double duration_s = table.number({"duration_s", "How long it lasts.", "s"}, positive);
    entry.when = ScheduledOutage{.at = from_seconds(at_s), .duration = from_seconds(duration_s)};
  }
  entry.loses_state = table.choice({"state", "Whether the worker goes on where it was, or loses its state."},
                                   {{"kept", false}, {"lost", true}}, false);
  if (random && table.faults_so_far() == faults_before)
    check_frequency(table, std::get<RandomOutages>(entry.when), entry.loses_state, micro_batch_s);
  return entry;
}

}  // namespace

std::shared_ptr<const OutagePlan> read_outages(Settings& root, std::uint64_t seed, int workers, bool workers_known,
                                               double micro_batch_s) {
  const std::size_t faults = root.faults_so_far();
  std::vector<OutageEntry> entries;
  for (Settings& table : root.sections({"outages", "Times in which workers make no progress; any number of entries."}))
    entries.push_back(read_entry(table, workers_known ? workers - 1 : std::numeric_limits<int>::max(), micro_batch_s));
  if (entries.size() > OutagePlan::most_entries)
    root.fault("outages", fmt::format("must be at most {} entries", OutagePlan::most_entries));
  // What follows from a fault need not be fit for a plan.
  if (entries.empty() || root.faults_so_far() > faults) return nullptr;
  return std::make_shared<OutagePlan>(seed, std::move(entries));
}

void check_outages_of_steps(Settings& root, const OutagePlan& plan, int micro_batches, double micro_batch_s,
                            const std::string& method) {
  std::vector<Settings> tables = root.sections("outages");
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const OutageEntry& entry = plan.entries()[i];
    const auto* const outages = std::get_if<RandomOutages>(&entry.when);
    if (!outages || !entry.loses_state) continue;
    check_frequency(tables[i], *outages, micro_batches * micro_batch_s, most_losses,
                    fmt::format("the time of a step of {} micro-batches, which \"{}\" begins anew as a whole where the "
                                "state is lost",
                                micro_batches, method));
  }
}

}  // namespace syncopate
