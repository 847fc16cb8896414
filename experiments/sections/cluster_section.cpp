#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "experiments/sections/definition.hpp"
#include "workers/base/units.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/delays.hpp"
#include "workers/time/network.hpp"

namespace syncopate {

namespace {

constexpr Range positive{.low = 0, .high = longest_delay, .low_open = true};
constexpr int most_micro_batches = 1 << 24;

// One factor per worker, or none where all are alike. `known`: whether the number of workers is.
std::vector<double> read_worker_factors(Settings& cluster, int workers, bool known) {
  const bool listed = cluster.has("worker_factors");
  const bool slow = cluster.has("slow_workers");
  std::vector<double> factors;
  if (listed) {
    const std::size_t faults = cluster.faults_so_far();
    factors = cluster.numbers(
        {"worker_factors", "How many times as long each worker takes, one factor per worker.", "", "1 for all"},
        positive);
    const bool right = std::ssize(factors) == workers;
    if (!right && known && cluster.faults_so_far() == faults) {
      cluster.fault("worker_factors",
                    fmt::format("must have one factor per worker, {}; found {}", workers, factors.size()));
    }
    if (!right) factors.clear();
  }
  if (slow) {
    if (listed) cluster.fault("slow_workers", "must not be given together with worker_factors");
    Settings slow_workers =
        cluster.section({"slow_workers", "Some workers that are slower than the others all the time."});
    const std::int64_t count =
        slow_workers.integer({"count", "How many workers are slow: those with the highest ranks."}, 0,
                             Stated(known ? workers : most_workers, "cluster.workers"));
    const double factor = slow_workers.number({"factor", "How many times as long a slow worker takes."}, positive);
    if (!known) return {};
    factors.assign(static_cast<std::size_t>(workers), 1.0);
    for (std::int64_t i = workers - count; i < workers; ++i) factors[static_cast<std::size_t>(i)] = factor;
  }
  return factors;
}

double largest(const std::vector<double>& factors) { return factors.empty() ? 1 : std::ranges::max(factors); }

// A product of keys may be larger than each of them is allowed to be.
void check_length(Settings& delay, const DelayProcess& process) {
  const double mean_s = process.mean_s();
  if (std::isnan(mean_s) || (std::isfinite(mean_s) && mean_s > longest_delay))
    delay.fault("kind", fmt::format("must give delays a mean of at most {:g} s; found {:g} s", longest_delay, mean_s));
}

// A maximum is at most the sum, so the expected time of the slowest worker exists exactly where each one's does.
void check_mean(Settings& delay, const DelayProcess& process) {
  if (std::isfinite(process.mean_s())) return;
  const char* const key = delay.has("shape") ? "shape" : "kind";
  delay.fault(key,
              "must give delays a finite mean (a Pareto law has one above shape 1): without it no worker's step has an "
              "expected time, and neither has the slowest of them, so there is nothing to predict; a run can be made");
}

// Durations that a trace has, instead of micro_batch_s; null without one, or after a fault.
std::shared_ptr<const DelayProcess> read_base_durations(Settings& cluster, ClusterSection& result) {
  if (!cluster.has("trace")) return nullptr;
  if (cluster.has("micro_batch_s"))
    cluster.fault("micro_batch_s", "must not be given together with cluster.trace, which has all durations");
  if (result.plan.pace == Pace::inject && cluster.has("pace"))
    cluster.fault("pace", "must be \"emulate\" or left out: cluster.trace has whole durations, not what to add");
  result.plan.pace = Pace::emulate;
  Settings table =
      cluster.section({"trace", "A recorded run whose durations are all durations, instead of micro_batch_s."});
  return read_base_trace(table, result.workers_known ? result.plan.workers : 0, result.plan.micro_batches,
                         result.traces);
}

// The entries of [[delays]]: those that are part of a micro-batch's computation, and those that follow it.
struct Delays {
  std::vector<std::shared_ptr<const DelayProcess>> computing;
  std::vector<std::shared_ptr<const DelayProcess>> sleeps;
};

Delays read_delays(Settings& root, double micro_batch_s, bool finite_means, ClusterSection& result) {
  constexpr std::size_t most_delays = 255;  // each has a random stream of its own
  Delays delays;
  const int workers = result.workers_known ? result.plan.workers : 0;
  for (Settings& delay :
       root.sections({"delays", "What is added to the time of a micro-batch; any number of entries."})) {
    const std::size_t faults = delay.faults_so_far();
    auto process = make_delay(delay, {micro_batch_s, workers, &result.traces, result.plan.micro_batches});
    if (delay.faults_so_far() == faults) check_length(delay, *process);
    if (finite_means) check_mean(delay, *process);
    const Key sleep{"sleep", "Whether the worker sleeps so long after the micro-batch, instead of computing longer.",
                    "", "false"};
    const bool is_sleep = delay.optional_flag(sleep).value_or(false);
    (is_sleep ? delays.sleeps : delays.computing).push_back(std::move(process));
  }
  if (delays.computing.size() + delays.sleeps.size() > most_delays) {
    root.fault("delays", fmt::format("must be at most {} entries", most_delays));
    delays = {};
  }
  return delays;
}

// Who leaves the run, and after how many steps of its own.
std::vector<std::optional<Step>> read_leaving(Settings& cluster, int workers, bool known) {
  constexpr std::int64_t most_steps = 100'000'000'000;  // times micro_batches, still an integer
  std::vector<std::optional<Step>> data_of;
  for (Settings& leaving :
       cluster.sections({"leave", "Workers whose own data end early; collectives need everybody."})) {
    const std::size_t faults = leaving.faults_so_far();
    const auto ranks = leaving.integers({"workers", "The workers that leave the run."}, 0,
                                        Stated(known ? workers - 1 : most_workers, "cluster.workers - 1"));
    if (ranks.empty() && leaving.faults_so_far() == faults) leaving.fault("workers", "must name at least one worker");
    const Step steps =
        leaving.integer({"after_steps", "After how many steps of their own they leave.", "steps"}, 0, most_steps);
    if (!known) continue;
    data_of.resize(static_cast<std::size_t>(workers));
    for (const std::int64_t rank : ranks) {
      std::optional<Step>& data = data_of[static_cast<std::size_t>(rank)];
      if (data) leaving.fault("workers", fmt::format("must not name worker {}, which leaves already", rank));
      data = steps;
    }
  }
  return data_of;
}

// A micro-batch takes at least a nanosecond, whatever is drawn; where that were so on average, times would mean
// nothing.
void check_sum_of_means(Settings& root, double micro_batch_s,
                        const std::vector<std::shared_ptr<const DelayProcess>>& delays) {
  double sum_s = micro_batch_s;
  for (const auto& delay : delays) sum_s += delay->mean_s();
  if (sum_s <= 0)
    root.fault("delays",
               fmt::format("must leave a micro-batch some time: its {:g} s and the delays' means add up to {:g} s",
                           micro_batch_s, sum_s));
}

// Where a mean does not exist, what is certain: a micro-batch usually takes longer.
double sum_of_usual_delays(const std::vector<std::shared_ptr<const DelayProcess>>& delays) {
  double sum_s = 0;
  for (const auto& delay : delays)
    sum_s += std::max(std::isfinite(delay->mean_s()) ? delay->mean_s() : delay->minimum_s(), 0.0);
  return sum_s;
}

bool was_measured(Settings& cluster) {
  return cluster
      .optional_flag({"micro_batch_measured", "Written by the program: whether micro_batch_s was measured.", "",
                      "it was declared"})
      .value_or(false);
}

// A second stands for what is still to be measured.
double read_micro_batch_s(Settings& cluster, ClusterSection& result) {
  if (const auto word = cluster.word("micro_batch_s")) {
    result.plan.to_be_measured = cluster.text("micro_batch_s") == "measured";
    if (!result.plan.to_be_measured)
      cluster.fault("micro_batch_s",
                    fmt::format("must be a number above 0 and at most {}, or \"measured\"", longest_delay));
    return 1;
  }
  const double micro_batch_s = cluster.number(
      {"micro_batch_s",
       "Time of a micro-batch without delay; \"measured\": on this machine; a table: by its sequences' lengths.", "s"},
      positive);
  if (was_measured(cluster)) result.plan.measured_micro_batch_s = micro_batch_s;
  return micro_batch_s;
}

// [cluster.micro_batch_s]: what a micro-batch costs by its sequences' lengths.
ContentCost read_content_cost(Settings& cluster) {
  constexpr Range cost{.low = 0, .high = longest_delay};
  Settings table = cluster.section("micro_batch_s");
  const ContentCost costs = {
      .base_s = table.number({"base_s", "What every micro-batch takes.", "s"}, cost, 0.0),
      .per_token_s = table.number({"per_token_s", "For each of its tokens.", "s"}, cost, 0.0),
      .per_padded_token_s =
          table.number({"per_padded_token_s", "For each of its sequences times the longest's tokens.", "s"}, cost, 0.0),
      .per_squared_length_s = table.number(
          {"per_squared_length_s", "For each sequence's length squared; of the longest, where they are padded.", "s"},
          cost, 0.0)};
  if (costs.base_s + costs.per_token_s + costs.per_padded_token_s + costs.per_squared_length_s <= 0)
    cluster.fault("micro_batch_s", "must have a cost above 0, such as per_token_s");
  return costs;
}

// Null after a fault.
std::shared_ptr<const DelayProcess> plan_content_time(ContentCost cost, const LengthsOf& lengths_of, Settings& cluster,
                                                      ClusterSection& result) {
  const bool measured = was_measured(cluster);
  if (cluster.faults_so_far() > 0) return nullptr;
  const PlannedLengths planned = lengths_of(result.plan.workers, result.plan.micro_batches);
  if (!planned.lengths) return nullptr;
  cost.pads = planned.pads;
  result.plan.content_cost = cost;
  auto times = content_time(cost, planned.lengths);
  if (measured) result.plan.measured_micro_batch_s = times->mean_s();
  return times;
}

}  // namespace

ClusterSection read_cluster(Settings& root, std::uint64_t seed, bool finite_means, const LengthsOf& lengths_of) {
  ClusterSection result;
  const std::size_t faults = root.faults_so_far();
  Settings cluster = root.section({"cluster", "Who works, and how long a micro-batch takes."});
  result.plan.workers = static_cast<int>(cluster.integer({"workers", "How many workers there are."}, 1, most_workers));
  result.workers_known = root.faults_so_far() == faults;
  double micro_batch_s = 1;
  std::optional<ContentCost> cost;
  if (!cluster.has("trace")) {
    if (cluster.has_table("micro_batch_s"))
      cost = read_content_cost(cluster);
    else
      micro_batch_s = read_micro_batch_s(cluster, result);
  }
  result.plan.micro_batches = static_cast<int>(
      cluster.integer({"micro_batches", "How many micro-batches each worker computes in an optimizer step."}, 1,
                      most_micro_batches, 1));
  result.plan.data_of = read_leaving(cluster, result.plan.workers, result.workers_known);
  result.plan.pace = cluster.choice(
      {"pace", "Under MPI: sleep the added delay alone (inject), or until the whole drawn time is over (emulate)."},
      {{"inject", Pace::inject}, {"emulate", Pace::emulate}}, cluster.has("trace") ? Pace::emulate : Pace::inject,
      "\"inject\"; with a trace \"emulate\"");
  std::vector<double> factors = read_worker_factors(cluster, result.plan.workers, result.workers_known);

  auto durations = read_base_durations(cluster, result);
  if (cost) durations = plan_content_time(*cost, lengths_of, cluster, result);
  if (durations) micro_batch_s = std::max(durations->mean_s(), 1e-9);
  const double slowest_s = micro_batch_s * largest(factors);
  if (slowest_s > longest_delay)
    cluster.fault(cluster.has("slow_workers") ? "slow_workers" : "worker_factors",
                  fmt::format("must keep the slowest worker's micro-batch within {:g} s; it takes {:g} s",
                              longest_delay, slowest_s));
  auto [delays, sleeps] = read_delays(root, micro_batch_s, finite_means, result);
  check_sum_of_means(root, micro_batch_s, delays);
  if (!result.plan.to_be_measured) result.usual_micro_batch_s = slowest_s + sum_of_usual_delays(delays);
  const auto trailing_s = cluster.optional_number(
      {"trailing_s", "Work that a micro-batch leaves running: the next one and a collective wait for it.", "s", "0"},
      Range::between(0, longest_delay));
  if (trailing_s || !sleeps.empty())
    result.plan.pauses = std::make_shared<Pauses>(seed, trailing_s.value_or(0), std::move(sleeps), delays.size());
  result.plan.compute_time =
      durations ? std::make_shared<ComputeTime>(seed, std::move(durations), std::move(factors), std::move(delays))
                : std::make_shared<ComputeTime>(seed, micro_batch_s, std::move(factors), std::move(delays));

  result.plan.outages = read_outages(root, seed, result.plan.workers, result.workers_known, result.usual_micro_batch_s);
  if (result.plan.outages && result.plan.pauses)
    root.fault("outages", "must not be given together with delays that are sleeps, or with cluster.trailing_s");

  Settings network = root.section({"network", "What communication costs on the virtual clock."});
  const auto workers = result.workers_known ? std::optional(result.plan.workers) : std::nullopt;
  result.plan.network = make_network(network, {.workers = workers, .seed = seed});
  return result;
}

void fit_budget_to_traces(ClusterSection& cluster, Budget& budget) {
  for (TraceLimit& trace : cluster.traces) {
    if (trace.end == TraceEnd::wrap) continue;
    if (trace.end == TraceEnd::stop) {
      budget.steps = std::min(budget.steps.value_or(trace.steps), trace.steps);
    } else if (budget.steps && *budget.steps > trace.steps) {
      trace.table.fault(
          "end", fmt::format("{} ends after {} steps, and the budget is of {}; must be \"wrap\" to start again there, "
                             "\"stop\" to end the run there, or budget.steps at most {}",
                             trace.file, trace.steps.value(), budget.steps->value(), trace.steps.value()));
    }
  }
}

namespace {

// Mean costs, as methods meet them. Workers' links may be unlike each other, and a server's unlike theirs.
Duration longest_time(const NetworkModel& network, int workers, Bytes payload) {
  const auto message = [&](Rank from, Rank to) {
    return network.message({.from = from, .to = to, .payload = payload});
  };
  Duration longest = std::max(network.all_reduce(workers, payload), message(Rank{0}, Rank{1}));
  for (const Rank worker : Ranks(workers)) longest = std::max(longest, message(worker, Rank{workers}));
  return longest;
}

// The tables of [network] that may say what a link is like.
std::vector<Settings> tables_of_links(Settings& network) {
  std::vector<Settings> tables = {network};
  for (const char* key : {"inside", "racks", "server"})
    if (network.has_table(key)) tables.push_back(network.section(key));
  if (network.has("links"))
    for (const Settings& link : network.sections("links")) tables.push_back(link);
  return tables;
}

// Of the parts of the time the largest; of the links the slowest.
void name_the_key(Settings table, const NetworkModel& network, int workers, Bytes payload, const std::string& message) {
  const double whole_s = to_seconds(longest_time(network, workers, payload));
  const double jitter = table.has("jitter") ? table.number("jitter", Range::at_least(0)) : 0;
  const double serial_s = table.has("serial_s") ? table.number("serial_s", Range::at_least(0)) : 0;
  if (whole_s / (1 + jitter) <= longest_delay) return table.fault("jitter", message);
  if (serial_s >= whole_s / 2) return table.fault("serial_s", message);
  const bool is_latency = to_seconds(longest_time(network, workers, Bytes{0})) >= whole_s / 2;
  const char* const key = is_latency ? "latency_s" : "bandwidth_bytes_per_s";
  Settings* slowest = nullptr;
  double slowest_speed = std::numeric_limits<double>::infinity();
  std::vector<Settings> tables = tables_of_links(table);
  for (Settings& link : tables) {
    if (!link.has(key)) continue;
    const double value = link.number(key, Range::at_least(0)), speed = is_latency ? -value : value;
    if (slowest && speed >= slowest_speed) continue;
    slowest = &link;
    slowest_speed = speed;
  }
  (slowest ? *slowest : table).fault(key, message);
}

}  // namespace

void check_network_times(Settings& root, const NetworkModel& network, int workers, Bytes payload) {
  const Duration longest = longest_time(network, workers, payload);
  if (longest <= from_seconds(longest_delay)) return;
  const std::string found =
      longest < longest_duration ? fmt::format("{:g} s", to_seconds(longest)) : "longer than the clock";
  name_the_key(
      root.section("network"), network, workers, payload,
      fmt::format("must let a model of {} bytes reach all {} workers, and a server, within {:g} s; it takes {}",
                  payload.value(), workers, longest_delay, found));
}

namespace {

constexpr Range from_zero{.low = 0, .high = longest_delay};
constexpr double shortest_mean_s = 1e-6;
constexpr Range means = Range::between(shortest_mean_s, longest_delay);

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
