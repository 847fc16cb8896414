// The tables [cluster], [[delays]], [[outages]], [network], [budget], [evaluation], [checkpoint], [measurements] and
// [recording].
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "experiments/sections/definition.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/delays.hpp"

namespace syncopate {

namespace {

constexpr Range positive{.low = 0, .high = longest_delay, .low_open = true};
constexpr Range from_zero = Range::between(0, longest_delay);
constexpr int most_micro_batches = 1 << 24;

// Reads a list of at least one worker. `most_rank`: the highest rank.
std::vector<std::int64_t> read_workers(Settings& table, const Key& key, int most_rank) {
  const std::size_t faults = table.faults_so_far();
  std::vector<std::int64_t> ranks = table.integers(key, 0, Stated(most_rank, "cluster.workers - 1"));
  if (ranks.empty() && table.faults_so_far() == faults) table.fault("workers", "must name at least one worker");
  return ranks;
}

// Returns one factor per worker; empty if all are equally fast. `known`: whether the number of workers is known.
std::vector<double> read_worker_factors(Settings& cluster, int workers, bool known) {
  const bool listed = cluster.has("worker_factors");
  const bool slow = cluster.has("slow_workers");
  std::vector<double> factors;
  if (listed) {
    const std::size_t faults = cluster.faults_so_far();
    factors = cluster.numbers(
        {"worker_factors", "One factor per worker, by which its micro-batches take longer.", "", "1 for all"},
        positive);
    const bool right = std::ssize(factors) == workers;
    if (!right && known && cluster.faults_so_far() == faults)
      cluster.fault("worker_factors",
                    fmt::format("must have one factor per worker, {}; found {}", workers, factors.size()));
    if (!right) factors.clear();
  }
  if (slow) {
    if (listed) cluster.fault("slow_workers", "cannot be combined with worker_factors");
    Settings slow_workers =
        cluster.section({"slow_workers", "Workers that are slower than the others during the whole run."});
    const std::int64_t count =
        slow_workers.integer({"count", "How many workers are slow: those with the highest ranks."}, 0,
                             Stated(known ? workers : most_workers, "cluster.workers"));
    const double factor =
        slow_workers.number({"factor", "The factor by which slow workers' micro-batches take longer."}, positive);
    if (!known) return {};
    factors.assign(static_cast<std::size_t>(workers), 1.0);
    for (std::int64_t i = workers - count; i < workers; ++i) factors[static_cast<std::size_t>(i)] = factor;
  }
  return factors;
}

double largest(const std::vector<double>& factors) { return factors.empty() ? 1 : std::ranges::max(factors); }

// Checks that the delay's mean is not too long, which it may be although each key is within its range.
void check_length(Settings& delay, const DelayProcess& process) {
  const double mean_s = process.mean_s();
  if (std::isnan(mean_s) || (std::isfinite(mean_s) && mean_s > longest_delay))
    delay.fault("kind", fmt::format("must have a mean of at most {:g} s; found {:g} s", longest_delay, mean_s));
}

// Checks that the mean is finite. (Then the slowest worker's time has a finite mean, too: a maximum of positive times
// is at most their sum.)
void check_mean(Settings& delay, const DelayProcess& process) {
  if (std::isfinite(process.mean_s())) return;
  const char* const key = delay.has("shape") ? "shape" : "kind";
  delay.fault(
      key,
      "must have a finite mean (a Pareto distribution needs shape > 1): without it a step has no expected time, "
      "so there is nothing to predict; the experiment can still be run");
}

// Reads [cluster.trace], which replaces micro_batch_s. Returns null without a trace, or after a fault.
std::shared_ptr<const DelayProcess> read_base_durations(Settings& cluster, ClusterSection& result) {
  if (!cluster.has("trace")) return nullptr;
  if (cluster.has("micro_batch_s"))
    cluster.fault("micro_batch_s", "cannot be combined with cluster.trace, which contains all durations");
  if (result.plan.pace == Pace::inject && cluster.has("pace"))
    cluster.fault("pace", "must be \"emulate\" or left out: cluster.trace contains whole durations, not added delays");
  result.plan.pace = Pace::emulate;
  Settings table =
      cluster.section({"trace", "A recording that contains all micro-batches' durations, instead of micro_batch_s."});
  return read_base_trace(table, result.workers_known ? result.plan.workers : 0, result.plan.micro_batches,
                         result.traces);
}

// The entries of [[delays]]: delays that lengthen a micro-batch's computation, and sleeps after it.
struct Delays {
  std::vector<std::shared_ptr<const DelayProcess>> computing;
  std::vector<std::shared_ptr<const DelayProcess>> sleeps;
};

Delays read_delays(Settings& root, double micro_batch_s, bool finite_means, ClusterSection& result) {
  constexpr std::size_t most_delays = 255;  // each delay needs a separate random stream
  Delays delays;
  const int workers = result.workers_known ? result.plan.workers : 0;
  for (Settings& delay : root.sections({"delays", "Times added to that of each micro-batch; any number of entries."})) {
    const std::size_t faults = delay.faults_so_far();
    auto process = make_delay(delay, {micro_batch_s, workers, &result.traces, result.plan.micro_batches});
    if (delay.faults_so_far() == faults) check_length(delay, *process);
    if (finite_means) check_mean(delay, *process);
    const Key sleep{"sleep", "Whether the worker sleeps for this time after the micro-batch, instead of computing.", "",
                    "false"};
    const bool is_sleep = delay.optional_flag(sleep).value_or(false);
    (is_sleep ? delays.sleeps : delays.computing).push_back(std::move(process));
  }
  if (delays.computing.size() + delays.sleeps.size() > most_delays) {
    root.fault("delays", fmt::format("must have at most {} entries", most_delays));
    delays = {};
  }
  return delays;
}

// Returns for each worker the number of its own steps after which it leaves the run; nullopt if it stays.
std::vector<std::optional<Step>> read_leaving(Settings& cluster, int workers, bool known) {
  constexpr std::int64_t most_steps = 100'000'000'000;  // this number times micro_batches still fits into std::int64_t
  std::vector<std::optional<Step>> data_of;
  for (Settings& leaving :
       cluster.sections({"leave", "Workers whose data end early (not for methods with collectives of all workers)."})) {
    const auto ranks =
        read_workers(leaving, {"workers", "The workers that leave the run."}, known ? workers - 1 : most_workers);
    const Step steps = leaving.integer(
        {"after_steps", "The number of their own steps after which they leave.", "steps"}, 0, most_steps);
    if (!known) continue;
    data_of.resize(static_cast<std::size_t>(workers));
    for (const std::int64_t rank : ranks) {
      std::optional<Step>& data = data_of[static_cast<std::size_t>(rank)];
      if (data)
        leaving.fault("workers",
                      fmt::format("must not name worker {} again: it is already among the workers that leave", rank));
      data = steps;
    }
  }
  return data_of;
}

// Checks that the mean time of a micro-batch is positive although delays may be negative. Drawn times are at least a
// nanosecond, so with a mean of 0 or less all times would be meaningless.
void check_sum_of_means(Settings& root, double micro_batch_s,
                        const std::vector<std::shared_ptr<const DelayProcess>>& delays) {
  double sum_s = micro_batch_s;
  for (const auto& delay : delays) sum_s += delay->mean_s();
  if (sum_s <= 0)
    root.fault("delays",
               fmt::format("must leave a positive time: a micro-batch's {:g} s and the delays' means sum to {:g} s",
                           micro_batch_s, sum_s));
}

// Returns the sum of mean delays. A delay without a finite mean counts with its minimum, although it is usually longer.
double sum_of_usual_delays(const std::vector<std::shared_ptr<const DelayProcess>>& delays) {
  double sum_s = 0;
  for (const auto& delay : delays)
    sum_s += std::max(std::isfinite(delay->mean_s()) ? delay->mean_s() : delay->minimum_s(), 0.0);
  return sum_s;
}

bool was_measured(Settings& cluster) {
  return cluster
      .optional_flag(
          {"micro_batch_measured", "Written by the program: whether micro_batch_s was measured.", "", "false"})
      .value_or(false);
}

// Returns the time in the file; 1 s if the time is still to be measured.
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
       "A micro-batch's time without delays; \"measured\" (on this machine); or a table of costs of sequences.", "s"},
      positive);
  if (was_measured(cluster)) result.plan.measured_micro_batch_s = micro_batch_s;
  return micro_batch_s;
}

// Reads the table [cluster.micro_batch_s]: a micro-batch's time as a function of its sequences' lengths.
ContentCost read_content_cost(Settings& cluster) {
  Settings table = cluster.section("micro_batch_s");
  const ContentCost costs = {
      .base_s = table.number({"base_s", "The time of every micro-batch.", "s"}, from_zero, 0.0),
      .per_token_s = table.number({"per_token_s", "Additional time per token.", "s"}, from_zero, 0.0),
      .per_padded_token_s = table.number(
          {"per_padded_token_s", "Additional time per token if all sequences are padded to the longest.", "s"},
          from_zero, 0.0),
      .per_squared_length_s =
          table.number({"per_squared_length_s",
                        "Additional time per squared length of each sequence (the longest's if padded).", "s"},
                       from_zero, 0.0)};
  if (costs.base_s + costs.per_token_s + costs.per_padded_token_s + costs.per_squared_length_s <= 0)
    cluster.fault("micro_batch_s", "must have a cost above 0, such as per_token_s");
  return costs;
}

// Returns the law of a micro-batch's time by its sequences' lengths; null after a fault.
std::shared_ptr<const DelayProcess> plan_content_time(ContentCost cost, const PlanData& plan_data, Settings& cluster,
                                                      ClusterSection& result) {
  const bool measured = was_measured(cluster);
  if (cluster.faults_so_far() > 0) return nullptr;
  const ObjectivePlan& data = plan_data(result.plan.workers, result.plan.micro_batches);
  if (!data.lengths) return nullptr;
  cost.pads = data.pads;
  result.plan.content_cost = cost;
  auto times = content_time(cost, data.lengths);
  if (measured) result.plan.measured_micro_batch_s = times->mean_s();
  return times;
}

// Returns the longest time of an all-reduce or a message, at mean costs. Workers may have different links to a server.
Duration longest_time(const NetworkModel& network, int workers, Bytes payload) {
  const auto message = [&](Rank from, Rank to) {
    return network.message({.from = from, .to = to, .payload = payload});
  };
  Duration longest = std::max(network.all_reduce(workers, payload), message(Rank{0}, Rank{1}));
  for (const Rank worker : Ranks(workers)) longest = std::max(longest, message(worker, Rank{workers}));
  return longest;
}

// Returns the tables within [network] that may describe links.
std::vector<Settings> tables_of_links(Settings& network) {
  std::vector<Settings> tables = {network};
  for (const char* key : {"inside", "racks", "server"})
    if (network.has_table(key)) tables.push_back(network.section(key));
  if (network.has("links"))
    for (const Settings& link : network.sections("links")) tables.push_back(link);
  return tables;
}

// Adds the fault at the key that causes most of the time, on the slowest link.
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

constexpr double shortest_mean_s = 1e-6;
constexpr Range means = Range::between(shortest_mean_s, longest_delay);

enum class OutageForm { scheduled, random, recorded };

// Returns how the entry describes outages: one outage by its time, random ones by their frequency, or recorded ones.
// Adds a fault if it mixes these descriptions.
OutageForm form_of(Settings& table) {
  const bool scheduled = table.has("at_s") || table.has("duration_s");
  const bool random = table.has("mean_time_between_s") || table.has("mean_duration_s");
  if (table.has("file")) {
    for (const char* const key : {"at_s", "duration_s", "mean_time_between_s", "mean_duration_s"})
      if (table.has(key)) table.fault(key, "must not be given together with file, which has the times of all faults");
    return OutageForm::recorded;
  }
  if (scheduled && random) {
    const char* const other = table.has("mean_time_between_s") ? "mean_time_between_s" : "mean_duration_s";
    table.fault(other, "cannot be combined with at_s or duration_s: an outage is either scheduled or random");
  }
  return random && !scheduled ? OutageForm::random : OutageForm::scheduled;
}

// The largest ratio of a micro-batch's time to the mean time between outages that lose state. A micro-batch is then
// started e^ratio times on average. (During the run, most_restarts bounds longer micro-batches.)
constexpr double most_losses = 8;
// The largest mean number of outages that keep state during a micro-batch of mean length.
constexpr double most_breaks = 1000;

// Checks that on average at most `most` outages occur within `time_s`, the duration of `what`.
void check_frequency(Settings& table, const RandomOutages& outages, double time_s, double most,
                     const std::string& what) {
  const double least_s = std::max(shortest_mean_s, time_s / most);
  if (outages.mean_time_between_s >= least_s) return;
  table.fault("mean_time_between_s",
              fmt::format("must be at least {:g} s, 1/{} of {}, or the run would make hardly any progress", least_s,
                          most, what));
}

// `workers`: number of workers that the entry concerns; 0: unknown.
RecordedOutages read_recorded(Settings& table, int workers) {
  RecordedOutages recorded;
  recorded.recording = read_data_file<FaultRecording>(table);
  recorded.time_scale = table.number(
      {"time_scale", "Factor of recorded starts and durations: with 0.001 a year passes in 9 hours."}, positive, 1);
  const int known_nodes = recorded.recording ? recorded.recording->nodes() : 1;
  if (table.has("nodes")) {
    const Key nodes{"nodes", "The recording's node for each of the workers, in their order.", "", "drawn by the seed"};
    for (const std::int64_t node : table.integers(nodes, 0, std::numeric_limits<int>::max()))
      recorded.nodes.push_back(static_cast<int>(node));
    if (workers > 0 && recorded.nodes.size() != static_cast<std::size_t>(workers))
      table.fault("nodes", fmt::format("must be {} numbers, one for each worker of the entry", workers));
    return recorded;
  }
  recorded.node_count = static_cast<int>(
      table.integer({"node_count", "How many nodes were recorded; those without rows had no fault."}, known_nodes,
                    1'000'000, Stated<std::int64_t>(known_nodes, "the largest node's number plus 1")));
  if (recorded.recording && workers > recorded.node_count)
    table.fault("node_count", fmt::format("must be at least {}: each worker draws a node of its own; or list `nodes`, "
                                          "which may repeat",
                                          workers));
  return recorded;
}

OutageEntry read_entry(Settings& table, int most_rank, double micro_batch_s) {
  OutageEntry entry;
  const std::size_t faults_before = table.faults_so_far();
  const OutageForm form = form_of(table);
  const bool random = form == OutageForm::random;
  if (form == OutageForm::scheduled || table.has("workers"))
    for (const auto rank : read_workers(table, {"workers", "The workers that are down.", "", "all"}, most_rank))
      entry.workers.emplace_back(static_cast<int>(rank));
  if (form == OutageForm::recorded) {
    const bool is_all = entry.workers.empty();
    const int all = most_rank == std::numeric_limits<int>::max() ? 0 : most_rank + 1;
    entry.when = read_recorded(table, is_all ? all : static_cast<int>(entry.workers.size()));
  } else if (random) {
    const Key between{"mean_time_between_s", "Mean time from the end of an outage to the next one, exponential.", "s",
                      "the outage is scheduled"};
    const Key duration{"mean_duration_s", "Mean length of an outage, exponential.", "s", "the outage is scheduled"};
    entry.when = RandomOutages{.mean_time_between_s = table.number(between, means),
                               .mean_duration_s = table.number(duration, means)};
  } else {
    const double at_s =
        table.number({"at_s", "When a scheduled outage begins, since the start of the run.", "s"}, from_zero);
    const double duration_s = table.number({"duration_s", "How long a scheduled outage lasts.", "s"}, positive);
    entry.when = ScheduledOutage{.at = from_seconds(at_s), .duration = from_seconds(duration_s)};
  }
  entry.loses_state = table.choice({"state", "Whether the worker keeps its state and continues, or loses its state."},
                                   {{"kept", false}, {"lost", true}}, false);
  if (random && table.faults_so_far() == faults_before)
    check_frequency(
        table, std::get<RandomOutages>(entry.when), micro_batch_s, entry.loses_state ? most_losses : most_breaks,
        entry.loses_state ? "a micro-batch's time, because outages lose the state" : "a micro-batch's time");
  return entry;
}

// Reads the tables [[outages]]; returns null without them. `micro_batch_s`: the mean time of the slowest worker's
// micro-batch, which limits the frequency of outages.
std::shared_ptr<const OutagePlan> read_outages(Settings& root, std::uint64_t seed, int workers, bool workers_known,
                                               double micro_batch_s) {
  const std::size_t faults = root.faults_so_far();
  std::vector<OutageEntry> entries;
  for (Settings& table :
       root.sections({"outages", "Times during which workers make no progress; any number of entries."}))
    entries.push_back(read_entry(table, workers_known ? workers - 1 : std::numeric_limits<int>::max(), micro_batch_s));
  if (entries.size() > OutagePlan::most_entries)
    root.fault("outages", fmt::format("must have at most {} entries", OutagePlan::most_entries));
  // After a fault the entries may not make a valid plan.
  if (entries.empty() || root.faults_so_far() > faults) return nullptr;
  return std::make_shared<OutagePlan>(seed, std::move(entries));
}

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

Step at_least_one(Step steps) { return std::max(steps, Step{1}); }

}  // namespace

ClusterSection read_cluster(Settings& root, std::uint64_t seed, bool finite_means, const PlanData& plan_data) {
  ClusterSection result;
  const std::size_t faults = root.faults_so_far();
  Settings cluster = root.section({"cluster", "The workers, and how long a micro-batch takes."});
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
      {"pace", "Under MPI: sleep for the drawn delay (inject), or until the whole drawn time is over (emulate)."},
      {{"inject", Pace::inject}, {"emulate", Pace::emulate}}, cluster.has("trace") ? Pace::emulate : Pace::inject,
      "\"inject\"; with a trace \"emulate\"");
  std::vector<double> factors = read_worker_factors(cluster, result.plan.workers, result.workers_known);

  auto durations = read_base_durations(cluster, result);
  if (cost) durations = plan_content_time(*cost, plan_data, cluster, result);
  if (durations) micro_batch_s = std::max(durations->mean_s(), 1e-9);
  const double slowest_s = micro_batch_s * largest(factors);
  if (slowest_s > longest_delay)
    cluster.fault(cluster.has("slow_workers") ? "slow_workers" : "worker_factors",
                  fmt::format("is too large: the slowest worker's micro-batch must take at most {:g} s; found {:g} s",
                              longest_delay, slowest_s));
  auto [delays, sleeps] = read_delays(root, micro_batch_s, finite_means, result);
  check_sum_of_means(root, micro_batch_s, delays);
  if (!result.plan.to_be_measured) result.usual_micro_batch_s = slowest_s + sum_of_usual_delays(delays);
  const auto trailing_s = cluster.optional_number(
      {"trailing_s", "Asynchronous work after a micro-batch; the next one and collectives wait for it.", "s", "0"},
      from_zero);
  if (trailing_s || !sleeps.empty())
    result.plan.pauses = std::make_shared<Pauses>(seed, trailing_s.value_or(0), std::move(sleeps), delays.size());
  result.plan.compute_time =
      durations ? std::make_shared<ComputeTime>(seed, std::move(durations), std::move(factors), std::move(delays))
                : std::make_shared<ComputeTime>(seed, micro_batch_s, std::move(factors), std::move(delays));

  result.plan.outages = read_outages(root, seed, result.plan.workers, result.workers_known, result.usual_micro_batch_s);
  if (result.plan.outages && result.plan.pauses)
    root.fault("outages", "cannot be combined with delays that are sleeps, or with cluster.trailing_s");

  Settings network = root.section({"network", "The cost of communication on the virtual clock."});
  const auto workers = result.workers_known ? std::optional(result.plan.workers) : std::nullopt;
  result.plan.network = make_network(network, {.workers = workers, .seed = seed});
  return result;
}

void fit_budget_to_traces(ClusterSection& cluster, Budget& budget) {
  for (TraceLimit& limit : cluster.traces) {
    if (limit.end == TraceEnd::wrap) continue;
    const Step recorded = limit.trace->steps();
    if (limit.end == TraceEnd::stop) {
      budget.steps = std::min(budget.steps.value_or(recorded), recorded);
    } else if (budget.steps && *budget.steps > recorded) {
      limit.table.fault(
          "end", fmt::format("{} ends after {} steps, but the budget is {} steps; use \"wrap\" to repeat the trace, "
                             "\"stop\" to end the run there, or budget.steps of at most {}",
                             limit.trace->file(), recorded.value(), budget.steps->value(), recorded.value()));
    }
  }
}

void check_network_times(Settings& root, const NetworkModel& network, int workers, Bytes payload) {
  const Duration longest = longest_time(network, workers, payload);
  if (longest <= from_seconds(longest_delay)) return;
  const std::string found =
      longest < longest_duration ? fmt::format("{:g} s", to_seconds(longest)) : "longer than the clock's range";
  name_the_key(
      root.section("network"), network, workers, payload,
      fmt::format("must let a model of {} bytes reach all {} workers (and a server) within {:g} s; it takes {}",
                  payload.value(), workers, longest_delay, found));
}

void check_outages_of_steps(Settings& root, const OutagePlan& plan, int micro_batches, double micro_batch_s,
                            const std::string& method) {
  std::vector<Settings> tables = root.sections("outages");
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const OutageEntry& entry = plan.entries()[i];
    const auto* const outages = std::get_if<RandomOutages>(&entry.when);
    if (!outages || !entry.loses_state) continue;
    check_frequency(tables[i], *outages, micro_batches * micro_batch_s, most_losses,
                    fmt::format("the time of a step of {} micro-batches, which \"{}\" repeats as a whole if a worker "
                                "loses its state",
                                micro_batches, method));
  }
}

BudgetSection read_budget(Settings& root, const EpochLength& epoch) {
  Budget result;
  Settings budget =
      root.section({"budget", "When a run ends: at the first of these limits that it reaches. At least one."});
  result.steps = budget.optional_integer({"steps", "Optimizer steps.", "steps", "no limit"}, 1, most);
  const Key in_epochs{"epochs", "Passes of all workers together over the training data.", "epochs", "no limit"};
  if (const auto epochs = budget.optional_number(in_epochs, Range::finite_positive())) {
    if (const auto steps = steps_of_epochs(budget, "epochs", *epochs, epoch))
      result.steps = std::min(result.steps.value_or(most), at_least_one(*steps));
  }
  const bool counts_steps = result.steps || budget.has("epochs");
  result.samples = budget.optional_integer(
      {"samples", "Samples of all workers whose gradients were used.", "samples", "no limit"}, 1, most);
  result.seconds =
      budget.optional_number({"seconds", "Time on the cluster's clock.", "s", "no limit"}, Range::finite_positive());
  result.bytes =
      budget.optional_integer({"bytes", "Bytes that all workers together send.", "bytes", "no limit"}, 1, most);
  const bool is_limited = counts_steps || result.samples || result.seconds || result.bytes;
  if (!is_limited) root.fault("budget", "must set at least one of steps, epochs, samples, seconds, bytes");
  return {result, counts_steps || !is_limited};
}

EvaluationPlan read_evaluation(Settings& root, const TrainingSection& training) {
  constexpr std::int64_t default_steps = 100;
  EvaluationPlan plan;
  Settings evaluation = root.section({"evaluation", "When the model is evaluated; it takes no time on the clock."});
  const Key in_epochs{"every_epochs", "Evaluates the model at this interval in epochs, instead of every_steps.",
                      "epochs"};
  const Key in_seconds{"every_seconds", "The interval in time on the cluster's clock, instead of every_steps.", "s"};
  constexpr Range clock_ticks{.low = 1e-9, .high = longest_delay};
  if (const auto seconds = evaluation.optional_number(in_seconds, clock_ticks)) {
    for (const char* const other : {"every_steps", "every_epochs"})
      if (evaluation.has(other)) evaluation.fault(other, "cannot be combined with every_seconds");
    plan.every_duration = from_seconds(*seconds);
  } else if (const auto epochs = evaluation.optional_number(in_epochs, Range::finite_positive())) {
    if (evaluation.has("every_steps")) evaluation.fault("every_steps", "cannot be combined with every_epochs");
    plan.every_steps = at_least_one(steps_of_epochs(evaluation, "every_epochs", *epochs, training.epoch).value_or(1));
  } else {
    plan.every_steps =
        evaluation.integer({"every_steps", "Evaluates the model at this interval in steps, and at the end.", "steps"},
                           1, most, default_steps);
  }
  plan.train_samples =
      evaluation.integer({"train_samples", "The number of training samples for the training loss.", "samples"}, 1, most,
                         plan.train_samples);
  plan.target_accuracy = evaluation.optional_number(
      {"target_accuracy", "The accuracy to reach for \"time to target\", as a fraction.", "", "no target"},
      {.low = 0, .high = 1, .low_open = true});
  const bool lacks_accuracy = training.objective.load && !training.objective.has_accuracy;
  if (plan.target_accuracy && !training.plan.time_only && lacks_accuracy)
    evaluation.fault("target_accuracy", "must be left out: this model has no accuracy");
  plan.target_loss = evaluation.optional_number(
      {"target_loss", "The loss to reach for \"time to target\".", "", "no target"}, Range::any());
  if (!plan.target_accuracy && !plan.target_loss) return plan;
  plan.targets_validation =
      evaluation.choice({"target_of", "The split for the targets; validation needs training.validation_samples."},
                        {{"test", false}, {"validation", true}}, false);
  if (plan.targets_validation && training.objective.load && training.objective.validation_samples == 0)
    evaluation.fault("target_of", "must be \"test\": there are no training.validation_samples");
  return plan;
}

CheckpointPlan read_checkpoint(Settings& root) {
  CheckpointPlan plan;
  if (!root.has("checkpoint")) return plan;
  Settings checkpoint = root.section({"checkpoint",
                                      "Files from which an interrupted run resumes: for runs under MPI, and for "
                                      "simulated runs with a model."});
  plan.every_s = checkpoint.number({"every_s", "The interval between checkpoints, in real time.", "s"},
                                   Range::positive(), plan.every_s);
  plan.is_written = checkpoint.flag({"write", "Whether checkpoints are written."}, plan.is_written);
  return plan;
}

MeasurementPlan read_measurements(Settings& root, const TrainingSection& training) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  MeasurementPlan plan;
  if (!root.has("measurements")) return plan;
  Settings table = root.section({"measurements", "Measurements at chosen steps; they take no time on the clock."});
  plan.every_steps =
      table.integer({"every_steps", "The interval in steps; also measures before the first step.", "steps"}, 1, most);
  MeasureOptions& model = plan.model;
  model.gradient_norm = table.flag(
      {"gradient_norm", "The norm of the loss's gradient on `samples`, without augmentation, smoothing and dropout."},
      false);
  model.noise_scale = table.flag(
      {"noise_scale", "Gradient variance between samples divided by the squared mean gradient, in samples."}, false);
  plan.step_gradient_norm = table.flag(
      {"step_gradient_norm", "The norm of a step's gradient on worker 0 or a server, before clipping."}, false);
  plan.consensus_distance = table.flag(
      {"consensus_distance", "Root mean square distance of workers' models from their mean, after local steps."},
      false);
  model.largest_eigenvalue = table.flag(
      {"largest_eigenvalue", "The largest eigenvalue of the loss's Hessian on `samples`, by power iteration."}, false);
  model.hessian_trace = table.flag({"hessian_trace", "The trace of that Hessian, by Hutchinson's estimator."}, false);
  model.samples =
      table.integer({"samples", "Number of training samples to measure on: the first ones of the data set.", "samples"},
                    1, most, model.samples);
  model.curvature.most_products = static_cast<int>(
      table.integer({"most_products", "Limit of Hessian-vector products for the eigenvalue, and for the trace."}, 1,
                    100'000, model.curvature.most_products));
  model.curvature.tolerance = table.number({"tolerance", "Eigenvalue and trace stop at a relative change below this."},
                                           Range::below_one(), model.curvature.tolerance);
  if (const std::string& why = training.objective.why_no_derivative; model.any() && !why.empty())
    table.fault("every_steps",
                "cannot be combined with gradient_norm, noise_scale, largest_eigenvalue or hessian_trace: " + why);
  if (model.noise_scale && training.objective.load && training.objective.steps_per_epoch == 0)
    table.fault("noise_scale", "must be false: this model has no samples whose gradients could differ");
  if (training.plan.time_only) table.fault("every_steps", "needs a model to measure");
  return plan;
}

RecordingPlan read_recording(Settings& root) {
  RecordingPlan plan;
  if (!root.has("recording")) return plan;
  Settings recording = root.section({"recording", "Additional files to write for each run."});
  plan.trace = recording.flag({"trace", "Whether trace.json.gz is written: what every worker does when."}, false);
  plan.trace_events = recording.integer({"trace_events", "The trace ends after this number of spans.", "spans"}, 1,
                                        std::numeric_limits<std::int64_t>::max(), plan.trace_events);
  plan.trace_seconds = recording.optional_number(
      {"trace_seconds", "The trace ends at this time on the cluster's clock.", "s", "no bound"},
      Range::finite_positive());
  plan.durations = recording.optional_flag(
      {"durations", "Whether durations.csv.gz is written, a row per micro-batch.", "", "only under MPI"});
  const auto writes = [&recording](std::string_view key, std::string_view sentence) {
    return recording.optional_flag({key, sentence, "", "false"}).value_or(false);
  };
  plan.arrivals = writes("arrivals", "Whether arrivals.csv.gz is written: the time of each round's k-th gradient.");
  plan.samples = writes(
      "samples", "Whether summary.json shows which classes and lengths are kept, and the bias of kept gradients.");
  plan.parameters = writes("parameters", "Whether parameters.npy, the final model, is written.");
  return plan;
}

}  // namespace syncopate
