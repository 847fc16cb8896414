#include "experiments/execution/time_simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <set>

#include "experiments/execution/execution.hpp"
#include "workers/base/process.hpp"
#include "workers/base/terminal_text.hpp"

namespace syncopate {

namespace {

// Returns the first step in (low, high] for which `holds` is true. `holds` must be true at `high`, and at all steps
// after the first step for which it is true.
template <typename Holds>
Step first_in(Step low, Step high, const Holds& holds) {
  while (low + Step{1} < high) {
    const Step middle = low + Step{(high - low).value() / 2};
    (holds(middle) ? high : low) = middle;
  }
  return high;
}

std::optional<Communicated> communicated(const Run& run, const KnownExchanges& exchanges, Step steps) {
  return run.algorithm->communication({.workers = run.cluster.workers,
                                       .parameter_bytes = run.training.parameter_bytes,
                                       .moments = run.training.optimizer->moments(),
                                       .steps = steps,
                                       .learning_rate = *run.training.learning_rate,
                                       .exchanges = exchanges.all,
                                       .average_exchanges = exchanges.of_average,
                                       .packet = exchanges.packet});
}

// Bounds on the work of simulations, in units of work_of.
constexpr std::int64_t most_work = 8'000'000;           // to simulate the first steps of all runs
constexpr std::int64_t most_work_of_one = 12'000'000;   // to simulate the steps until one run's method has settled
constexpr std::int64_t most_further_work = 12'000'000;  // to end rounds or simulate whole runs, in total
constexpr std::int64_t fewest_steps = 8;

Step steps_after_settling(const Run& run) {
  constexpr Step fewest = 30;
  return std::max(fewest, run.algorithm->traits().cycle);
}

// Returns for each run the number of steps to simulate (a run may have fewer). Work that short runs do not need is
// given to long runs. A budget in samples may last for more steps than planned, because dropped samples do not count.
std::vector<Step> shared_out(const std::vector<Run>& runs) {
  constexpr std::int64_t unplanned = std::numeric_limits<std::int32_t>::max();
  const auto needed = [&](std::size_t i) { return planned_steps(runs[i]).value_or(unplanned); };
  std::vector<std::size_t> order(runs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return work_of(runs[i], needed(i)); });
  std::vector<Step> steps(runs.size());
  std::int64_t left = most_work;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const Run& run = runs[order[k]];
    const std::int64_t share = left / static_cast<std::int64_t>(order.size() - k);
    std::int64_t affordable = std::max(fewest_steps, share / work_of(run, 1));
    const Step settled = settles_after(run);
    if (settled > 0) affordable = std::max(affordable, settled.value() + steps_after_settling(run).value());
    steps[order[k]] = std::min(run.budget.steps.value_or(unplanned), Step{affordable});
    left = std::max<std::int64_t>(0, left - work_of(run, std::min(needed(order[k]), steps[order[k]])));
  }
  return steps;
}

std::string why_not_simulated(const Run& run) {
  if (run.algorithm->traits().follows_values) return "needs training";
  if (const KnownExchanges exchanges = known_exchanges(run); !exchanges.why_none.empty()) return exchanges.why_none;
  const Step settled = settles_after(run), all = run.budget.steps.value_or(settled);
  const bool is_too_long = settled > 0 && work_of(run, std::min(settled, all)) > most_work_of_one;
  return is_too_long ? "too long to simulate" : "";
}

class Simulator {
 public:
  // Simulates the first `steps` steps. If they do not represent the rest, simulates all steps or a sample of rounds.
  Simulation simulate(const Run& run, Step steps) {
    if (std::string why = why_not_simulated(run); !why.empty()) return {.why_none = std::move(why)};
    try {
      return simulate_within(run, steps);
    } catch (const RunFailure& failure) {
      return {.why_none = failure.what(), .failed = true};
    }
  }

 private:
  Simulation simulate_within(const Run& run, Step steps) {
    const ScheduledRounds rounds(run);
    const Step part = part_of(run, rounds, steps);
    if (part > steps) further_work_ -= work_of(run, part - steps);
    const SimulatedTime first = simulate_time(run, part);
    if (first.whole || !first.total_time_s) return {.time = first};
    Step all = std::llround(std::min(1e15, *first.total_time_s / first.step_time_s));
    if (run.budget.steps) all = std::min(all, *run.budget.steps);
    if (rounds.stand_for_all(first.steps, all)) return {.time = first};
    // If the budget is not in steps, `all` is an estimate from the pace of the first steps. It is uncertain, so half of
    // it counts.
    const Step expected{all.value() / (ends_by_steps(run.budget) ? 1 : 2)};
    const Step most = affordable(run);
    if (expected <= most && most > first.steps) {
      const SimulatedTime whole = simulate_time(run, std::min(most, run.budget.steps.value_or(most)));
      further_work_ -= work_of(run, whole.steps);
      if (whole.whole) return {.time = whole};
    }
    const auto sampled = sample_time(run, rounds, std::max(most, steps));
    if (!sampled) return {.why_none = "too long: its first steps do not represent the rest"};
    further_work_ -= std::min(further_work_, work_of(run, sampled->steps));
    return {.time = sampled};
  }

  // Returns the number of steps to simulate: `steps`, changed so that the last one ends a round.
  Step part_of(const Run& run, const ScheduledRounds& rounds, Step steps) const {
    const Step all = run.budget.steps.value_or(Step{std::numeric_limits<Step::Rep>::max() / 2});
    if (steps >= all) return steps;
    return rounds.end_of_round(settles_after(run) > 0 ? settles_after(run) + steps_after_settling(run) : Step{1}, steps,
                               std::min(all, steps + affordable(run)));
  }

  Step affordable(const Run& run) const { return Step{std::max<std::int64_t>(0, further_work_ / work_of(run, 1))}; }

  std::int64_t further_work_ = most_further_work;
};

// The progress of the run when a global model was published, for comparison with the budget.
struct Waypoint {
  double step = 0, time_s = 0, micro_batches = 0, bytes = 0;
};

class Waypoints : public RunObserver {
 public:
  explicit Waypoints(std::int64_t samples_per_micro_batch) : samples_(static_cast<double>(samples_per_micro_batch)) {}
  void on_row(const StepRow& row) override {
    rows.push_back({static_cast<double>(row.step.value()), to_seconds(row.end), static_cast<double>(row.kept),
                    static_cast<double>(row.dropped)});
    longest_s = std::max(longest_s, to_seconds(row.duration));
  }
  void on_publish(const Publication& publication) override {
    const auto step = static_cast<double>(publication.step.value());
    // If several models have the same step, the last one counts.
    if (all.back().step == step && all.size() > 1) all.pop_back();
    all.push_back({step, to_seconds(publication.time), static_cast<double>(publication.samples) / samples_,
                   static_cast<double>(publication.bytes.value())});
  }

  // A row of steps.csv.
  struct Counts {
    double step, time_s, kept, dropped;
  };
  std::vector<Counts> rows{};
  double longest_s = 0;
  std::vector<Waypoint> all{{}};  // in ascending order; the first one is the start of the run

  // Returns waypoints from rows or from publications, whichever are more numerous. Those from rows lack bytes.
  std::vector<Waypoint> finest() const {
    if (rows.size() < all.size()) return all;
    std::vector<Waypoint> ends{{}};
    double kept = 0;
    for (const Counts& round : rows) {
      kept += round.kept;
      if (round.step > ends.back().step) ends.push_back({round.step, round.time_s, kept});
    }
    return ends;
  }

 private:
  double samples_;
};

// The mean pace between two waypoints.
struct Rates {
  double step_s = 0, micro_batches_per_s = 0, bytes_per_s = 0;
};

Rates rates_between(const Waypoint& from, const Waypoint& to) {
  const double time_s = to.time_s - from.time_s;
  return {time_s / (to.step - from.step), (to.micro_batches - from.micro_batches) / time_s,
          (to.bytes - from.bytes) / time_s};
}

// Returns the standard error of a rate, computed from the means of batches of consecutive steps. Batch means are nearly
// independent even if single steps are not. A lasting change of pace increases the error.
std::optional<double> standard_error_of(double Rates::*rate, const std::vector<Waypoint>& all, std::size_t first) {
  constexpr int most_batches = 25;
  constexpr std::size_t fewest_batches = 4;
  const double steps = all.back().step - all[first].step;
  std::vector<double> means;
  std::size_t begin = first;
  for (std::size_t end = first; end < all.size(); ++end) {
    if (all[end].step - all[begin].step < steps / most_batches || end == begin) continue;
    means.push_back(rates_between(all[begin], all[end]).*rate);
    begin = end;
  }
  if (means.size() < fewest_batches) return std::nullopt;
  const auto count = static_cast<double>(means.size());
  double mean = 0, squares = 0;
  for (const double value : means) mean += value / count;
  for (const double value : means) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / (count - 1) / count);
}

// Returns the time at which a run that continues at this pace reaches the first limit of its budget.
std::optional<double> end_of_budget(const Run& run, const Waypoint& so_far, const Rates& rates) {
  double time_s = std::numeric_limits<double>::infinity();
  const auto limit = [&](double left, double per_s) {
    if (per_s > 0) time_s = std::min(time_s, so_far.time_s + std::max(left, 0.0) / per_s);
  };
  const Budget& budget = run.budget;
  if (budget.steps) limit(static_cast<double>(budget.steps->value()) - so_far.step, 1 / rates.step_s);
  if (budget.seconds) limit(*budget.seconds - so_far.time_s, 1);
  if (budget.samples) {
    const auto micro_batches =
        static_cast<double>(*budget.samples) / static_cast<double>(run.training.samples_per_micro_batch);
    limit(micro_batches - so_far.micro_batches, rates.micro_batches_per_s);
  }
  if (budget.bytes) limit(static_cast<double>(budget.bytes->value()) - so_far.bytes, rates.bytes_per_s);
  if (std::isinf(time_s)) return std::nullopt;
  return time_s;
}

// Whether the run ended by itself and not because of the bound on simulated steps. Workers may be further than the last
// published step.
bool has_ended(const Run& run, Step at_most, const Waypoint& last, double kept, const RunTotals& totals) {
  const Budget& budget = run.budget;
  if (budget.steps && at_most >= *budget.steps) return true;
  if (budget.seconds && to_seconds(totals.end) >= *budget.seconds) return true;
  if (budget.bytes && totals.bytes >= *budget.bytes) return true;
  const double samples = kept * static_cast<double>(run.training.samples_per_micro_batch);
  if (budget.samples && samples >= static_cast<double>(*budget.samples)) return true;
  return !run.cluster.data_of.empty() && last.step < static_cast<double>(at_most.value());  // data may be used up
}

double sum_of(const std::vector<std::int64_t>& counts) {
  return static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
}

RunTotals run_time_only(const Run& run, const Budget& budget, RunObserver& observer, Step first_step = {}) {
  RunTraining nothing(run, nullptr, 0);
  const auto cluster = make_simulated_cluster(run, *nothing.training, &observer, nullptr);
  RunContext context = context_of(run, *cluster, *nothing.training, &observer);
  context.budget = budget;
  context.first_step = first_step;
  return run_algorithm(*run.algorithm, context);
}

// Returns the share of dropped micro-batches in the whole run. Its rest is like the rounds after `settled_s`, and takes
// `times_the_rest` times as long as they do.
double drop_rate(const RunTotals& totals, const Waypoints& waypoints, double settled_s, double times_the_rest) {
  double kept = sum_of(totals.kept), dropped = sum_of(totals.dropped);
  for (const auto& round : waypoints.rows) {
    if (round.time_s <= settled_s) continue;
    kept += times_the_rest * round.kept;
    dropped += times_the_rest * round.dropped;
  }
  return kept + dropped > 0 ? dropped / (kept + dropped) : 0;
}

double share_of(std::initializer_list<Activity> activities, const std::vector<Account>& accounts) {
  double spent_s = 0, all_s = 0;  // may exceed 292 years, the range of Duration
  for (const Account& account : accounts) {
    for (const Activity activity : activities) spent_s += to_seconds(account[activity]);
    all_s += to_seconds(account.total());
  }
  return all_s > 0 ? spent_s / all_s : 0;
}

// A sample of a run's rounds, simulated at places that are spread over its steps.
class SampleOfRounds {
 public:
  static std::optional<SampleOfRounds> of(const Run& run, const ScheduledRounds& rounds, Step all, Step affordable) {
    SampleOfRounds sample;
    for (int place = 0; place < places; ++place) {
      const Step step{(2 * place + 1) * (all.value() / (2 * places))};
      if (!sample.add(run, rounds, step, all, Step{affordable.value() / places})) return std::nullopt;
    }
    return sample;
  }

  // Returns the results per step, without the run's totals.
  SimulatedTime time() const {
    SimulatedTime result{.steps = simulated_, .is_sampled = true, .longest_round_s = longest_round_s_};
    double kept = 0, dropped = 0, communicating_s = 0, computing_s = 0;
    for (const Totals& one : all_) {
      result.step_time_s += one.time_s / places;
      kept += one.kept / places;
      dropped += one.dropped / places;
      communicating_s += one.communicating_s / places;
      computing_s += one.computing_s / places;
    }
    const double pace = kept / result.step_time_s;
    double squares = 0, squares_of_pace = 0;
    for (std::size_t i = 0; i + 1 < all_.size(); i += 2) {
      const double apart_s = all_[i].time_s - all_[i + 1].time_s;
      squares += apart_s * apart_s;
      const double apart = all_[i].kept - all_[i + 1].kept - pace * apart_s;
      squares_of_pace += apart * apart;
    }
    result.error_s = std::sqrt(squares) / places;
    result.pace_error = std::sqrt(squares_of_pace) / places / result.step_time_s;
    result.micro_batches_per_s = pace;
    result.drop_rate = kept + dropped > 0 ? dropped / (kept + dropped) : 0;
    result.communication_share = communicating_s / result.step_time_s;
    result.computing_share = computing_s / result.step_time_s;
    return result;
  }

 private:
  static constexpr int places = 64;  // two in each of 32 equal parts of the run
  // The totals of a simulation from one step to another.
  struct Totals {
    double time_s = 0, kept = 0, dropped = 0, communicating_s = 0, computing_s = 0;
  };
  Totals simulate(const Run& run, Step from, Step to) {
    if (from == to) return {};
    Waypoints waypoints(run.training.samples_per_micro_batch);
    const RunTotals totals = run_time_only(run, {.steps = to}, waypoints, from);
    simulated_ += to - from;
    longest_round_s_ = std::max(longest_round_s_, waypoints.longest_s);
    const double time_s = to_seconds(totals.end);
    return {.time_s = time_s,
            .kept = sum_of(totals.kept),
            .dropped = sum_of(totals.dropped),
            .communicating_s = time_s * share_of({Activity::communicate}, totals.accounts),
            .computing_s = time_s * share_of({Activity::compute, Activity::discarded}, totals.accounts)};
  }

  // Measures the round that contains this step, and further whole rounds within `affordable` steps. Two simulations
  // begin one round earlier: one ends after the measured rounds, the other before them. The measured rounds' time is
  // the difference of the two times. So averages that overlap rounds cost as much as in the run, and waiting for the
  // last average does not count.
  bool add(const Run& run, const ScheduledRounds& rounds, Step step, Step all, Step affordable) {
    const ScheduledRounds::Span first = rounds.round_with(step, all);
    const Step begin = first.begin, long_enough = std::min(begin + affordable, all - Step{1});
    const Step end = std::max(first.end, rounds.round_with(long_enough, all).begin);
    const Step before = begin > 0 ? rounds.round_with(begin - Step{1}, all).begin : begin;
    if (work_of(run, end - before) > most_work_of_one) return false;
    const Totals with = simulate(run, before, end), without = simulate(run, before, begin);
    if (with.time_s <= without.time_s) return false;
    const auto per_step = [&](double Totals::*total) {
      return (with.*total - without.*total) / static_cast<double>((end - begin).value());
    };
    all_.push_back({per_step(&Totals::time_s), per_step(&Totals::kept), per_step(&Totals::dropped),
                    per_step(&Totals::communicating_s), per_step(&Totals::computing_s)});
    return true;
  }

  std::vector<Totals> all_{};  // for each place: totals divided by the steps
  Step simulated_{};
  double longest_round_s_ = 0;
};

// Bounds for notes that ask whether a key is in the right unit. The first three are for communication. With servers and
// gossip, much of a message's time counts as waiting, so a small share of computing says more than a large share of
// communication. Workers also wait for slow workers, so communication must also take much longer than computing. The
// last two bounds are for DropCompute's `threshold_s`.
constexpr double nearly_all = 0.99;     // least share of communication in the time
constexpr double hardly_any = 0.01;     // or largest share of computing in the time,
constexpr double much_longer = 10;      // if communication takes at least this multiple of computing
constexpr double beyond_longest = 1.2;  // least threshold_s, as a multiple of the longest round
constexpr double beyond_mean = 3;       // least threshold_s, as a multiple of the mean round, if the longest is unknown

constexpr double busy_link = 0.5;  // least share of the time in which a server's link is busy; mean of both directions

struct Round {
  double time_s = 0;
  double beyond = 0;  // least threshold_s to note, as a multiple of time_s that chance does not explain
  const char* words = "a round takes";
};

Round longest_round(double time_s) {
  return {.time_s = time_s, .beyond = beyond_longest, .words = "none of the first rounds takes more than"};
}

struct SimulatedSteps {
  double drop_rate = 0;
  double communication_share = 0;
  double computing_share = 0;
  double link_share = 0;  // share of the time in which a server's link is busy, mean of both directions; 0: none shared
  double uplink_share = 0;  // share of the time in which a group's uplink is busy
  Round round{};
  std::string steps{};  // "200 simulated steps"
};

// Sets the shares of links if workers share the servers' links. `bytes`: sent by all workers within `time_s`.
void set_link_shares(SimulatedSteps& simulated_steps, const Run& run, double bytes, double time_s) {
  const Servers servers = run.algorithm->traits().servers;
  const NetworkModel& network = *run.cluster.network;
  if (servers == 0 || servers.regions > 0 || !network.has_shared_links() || time_s <= 0) return;
  constexpr Bytes sample{1'000'000'000};
  const auto route_from = [&](Rank worker) {
    return network.route(MessageCall{.from = worker, .to = Rank{run.cluster.workers}, .payload = sample});
  };
  const auto share_of = [&](const Hop& hop, int links) {
    return bytes / (2 * links) * to_seconds(hop.occupied) / static_cast<double>(sample.value()) / time_s;
  };
  const Route route = route_from(Rank{run.cluster.workers - 1});  // a worker of the last group
  simulated_steps.link_share = share_of(route.back(), servers.count);
  for (const Hop& hop : route)
    if (hop.uplinks > 0) simulated_steps.uplink_share = share_of(hop, hop.uplink / 2 + 1);
}

// Returns the key threshold_s of the DropCompute methods; nullopt for other methods.
std::optional<double> threshold_of(const Run& run) {
  if (run.resolved_toml.find("threshold_s = ") == std::string::npos) return {};
  const TomlNode configuration = parse_toml(run.resolved_toml, run.experiment);
  const TomlNode& method = configuration.find("methods")->array().front();
  const std::string& algorithm = std::get<std::string>(method.find("algorithm")->value);
  const TomlNode* threshold = method.find("threshold_s");
  if (!algorithm.starts_with("dropcompute") || !threshold) return {};
  const std::optional<double> number = number_in(threshold);
  return number && std::isfinite(*number) ? number : std::nullopt;  // inf: nothing is dropped
}

std::string threshold_note(const Run& run, const SimulatedSteps& simulated_steps) {
  if (simulated_steps.drop_rate > 0) return {};
  const auto threshold_s = threshold_of(run);
  if (!threshold_s || *threshold_s < simulated_steps.round.beyond * simulated_steps.round.time_s) return {};
  return fmt::format("threshold_s = {} drops nothing in {}, where {} {} s; is the threshold in seconds?",
                     shown_number(*threshold_s), simulated_steps.steps, simulated_steps.round.words,
                     shown_number(simulated_steps.round.time_s, 3));
}

std::string communication_note(const SimulatedSteps& simulated_steps) {
  constexpr const char* units = "are latencies in seconds and bandwidths in bytes per second?";
  if (simulated_steps.communication_share >= nearly_all)
    return fmt::format("communication takes {} % of the time in {}; {}",
                       with_decimals(100 * simulated_steps.communication_share, 1), simulated_steps.steps, units);
  const bool is_network = simulated_steps.communication_share >= much_longer * simulated_steps.computing_share;
  if (simulated_steps.computing_share >= hardly_any || simulated_steps.communication_share == 0 || !is_network)
    return {};
  return fmt::format("computing takes {} % of the time in {}, and communication more than {} times as long; {}",
                     shown_number(100 * simulated_steps.computing_share, 2), simulated_steps.steps, much_longer, units);
}

std::string link_note(const SimulatedSteps& simulated_steps) {
  const bool is_uplink = simulated_steps.uplink_share > simulated_steps.link_share;
  const double share = std::max(simulated_steps.link_share, simulated_steps.uplink_share);
  if (share < busy_link) return {};
  return fmt::format(
      "{} busy for {} % of the time (mean of both directions) in {}, and workers wait for {}",
      is_uplink ? "its groups' uplinks are" : "its server's link is", with_decimals(100 * share, 0),
      simulated_steps.steps,
      is_uplink ? "them; faster uplinks or fewer bytes shorten the wait"
                : "it; a faster server link, fewer bytes, or more servers (if the method allows) shorten the wait");
}

// Collects one line per method and kind of note, for the first sweep point with such a note.
class Notes {
 public:
  void add(const Run& run, const SimulatedSteps& simulated_steps) {
    add(run, 0, threshold_note(run, simulated_steps));
    const std::string of_link = link_note(simulated_steps);  // explains the note on communication, so it replaces it
    if (of_link.empty()) add(run, 1, communication_note(simulated_steps));
    add(run, 2, of_link);
  }
  std::string text() const {
    std::string text;
    for (const Note& note : notes_) {
      const std::size_t others = note.points.size() - 1;
      text += fmt::format("{}{}: {}\n", note.label, others == 0 ? "" : ", and at " + counted(others, "other point"),
                          note.text);
    }
    return text;
  }

 private:
  struct Note {
    std::size_t method;
    int kind;
    std::string label, text;
    std::set<KeyValues> points{};
  };
  void add(const Run& run, int kind, std::string text) {
    if (text.empty()) return;
    const auto same = std::ranges::find_if(
        notes_, [&](const Note& note) { return note.method == run.method_index && note.kind == kind; });
    Note& note = same != notes_.end()
                     ? *same
                     : notes_.emplace_back(Note{run.method_index, kind, run_label(run), std::move(text)});
    note.points.insert(run.sweep);
  }
  std::vector<Note> notes_;
};

// Bounds on the simulated steps of a run, and on the work of all runs in units of work_of.
constexpr std::int64_t most_noted_steps = 100, fewest_noted_steps = 10, most_noted_work = 4'000'000;

// Returns the number of steps to simulate: at most most_noted_steps, within the remaining work `left`. 0 if they would
// be too few to draw conclusions.
Step steps_within(const Run& run, std::int64_t left) {
  const std::int64_t affordable = std::min(most_noted_steps, left / 4 / work_of(run, 1));
  return affordable < fewest_noted_steps ? Step{0}
                                         : std::min(Step{affordable}, run.budget.steps.value_or(Step{affordable}));
}

// Returns the time of a round. A summary contains only the mean round, so if a threshold has dropped nothing, the first
// steps are simulated to find the longest round.
Round round_of(const Run& run, const RunSummary& summary, std::int64_t& left) {
  const Round mean{.time_s = summary.end_time_s / static_cast<double>(summary.rounds), .beyond = beyond_mean};
  if (summary.drop_rate() > 0 || threshold_of(run).value_or(0) < beyond_longest * mean.time_s) return mean;
  const Step steps = steps_within(run, left);
  if (steps == 0) return mean;
  left -= work_of(run, steps);
  const auto simulated = simulate_first_steps(run, steps);
  return simulated ? longest_round(std::max(mean.time_s, simulated->longest_round_s)) : mean;
}

}  // namespace

ScheduledRounds::ScheduledRounds(const Run& run)
    : run_(run),
      exchanges_(known_exchanges(run)),
      known_(exchanges_.why_none.empty() && communicated(run, exchanges_, Step{1})) {}

Communicated ScheduledRounds::until(Step steps) const {
  if (steps <= 0) return {};
  const auto [found, is_new] = until_.try_emplace(steps);
  if (is_new) found->second = communicated(run_, exchanges_, steps).value();
  return found->second;
}

bool ScheduledRounds::are_countable(Step steps, double most) const {
  const Step few = std::min(steps, Step{1'000'000});
  const double per_step = static_cast<double>(until(few).rounds) / static_cast<double>(few.value());
  return per_step * static_cast<double>(steps.value()) <= most;
}

Step ScheduledRounds::end_of_round(Step at_least, Step at_most, Step limit) const {
  if (const std::int64_t cycle = run_.algorithm->traits().cycle.value(); cycle > 1) {
    const Step last{at_most.value() / cycle * cycle}, next{last.value() + cycle};
    if (last > 0 && last >= at_least) return last;
    return next <= limit ? next : at_most;
  }
  if (!known_ || ends_round(at_most)) return at_most;
  // A round begins after the step at which the previous one ends.
  const std::int64_t rounds = until(at_most).rounds;
  const Step end = first_in(Step{}, at_most, [&](Step steps) { return until(steps).rounds >= rounds; }) - Step{1};
  if (end > 0 && end >= at_least) return end;
  if (limit <= at_most || until(limit).rounds == rounds) return at_most;
  return first_in(at_most, limit, [&](Step steps) { return until(steps).rounds > rounds; }) - Step{1};
}

// Extrapolates rounds and bytes from `first` to `all` steps. Returns the larger of the two relative errors.
double ScheduledRounds::misfit(Step first, Step all) const {
  constexpr std::int64_t most_rounds = 1'000'000;  // more rounds take long to count and hardly change the error
  const Step settled = settles_after(run_);
  const Communicated before = until(settled), part = until(first);
  const Step longest{first.value() * std::max<std::int64_t>(1, most_rounds / std::max<std::int64_t>(1, part.rounds))};
  all = std::min(all, longest);
  const Communicated whole = until(all);
  if (whole.rounds == 0 || first <= settled) return std::numeric_limits<double>::infinity();
  const double further = static_cast<double>((all - first).value()) / static_cast<double>((first - settled).value());
  const auto of_count = [&](auto count) {
    const auto of_part = static_cast<double>(count(part)), of_whole = static_cast<double>(count(whole));
    const double drawn_out = of_part + further * (of_part - static_cast<double>(count(before)));
    return std::abs(drawn_out - of_whole) / of_whole;
  };
  return std::max(of_count([](const Communicated& one) { return one.rounds; }),
                  of_count([](const Communicated& one) { return one.bytes.value(); }));
}

bool ScheduledRounds::stand_for_all(Step first, Step all) const {
  constexpr double tolerance = 0.01;
  const std::int64_t cycle = run_.algorithm->traits().cycle.value();
  if (cycle > 1 && first.value() % cycle != 0) return first >= all;
  if (!known_) return true;
  const bool is_cut_off = !ends_round(first) && tolerance * static_cast<double>(until(first).rounds) < 1;
  return !is_cut_off && (first >= all || misfit(first, all) <= tolerance);
}

std::optional<Communicated> scheduled_communication(const Run& run, double most_rounds) {
  if (!ends_by_steps(run.budget) || !run.cluster.data_of.empty() || run.cluster.outages) return std::nullopt;
  const ScheduledRounds rounds(run);
  const Step steps = *run.budget.steps;
  return rounds.are_known() && rounds.are_countable(steps, most_rounds) ? std::optional(rounds.until(steps))
                                                                        : std::nullopt;
}

ScheduledRounds::Span ScheduledRounds::round_with(Step step, Step all) const {
  const std::int64_t number = until(step + Step{1}).rounds;
  const auto has_begun = [&](Step steps) { return until(steps).rounds >= number; };
  const auto is_over = [&](Step steps) { return until(steps).rounds > number; };
  Step width{step.value() / std::max<std::int64_t>(1, number) + 1};
  Step low = step;  // a step before the beginning of the round
  for (; low > 0 && has_begun(low); width += width) low = std::max(Step{}, low - width);
  const Step begin = first_in(low, step + Step{1}, has_begun) - Step{1};
  Step high = step + Step{1};
  for (; high < all && !is_over(high); width += width) high = std::min(all, high + width);
  return {begin, is_over(high) ? first_in(step, high, is_over) - Step{1} : all};
}

std::vector<Simulation> simulate_all(const std::vector<Run>& runs) {
  const std::vector<Step> steps = shared_out(runs);
  Simulator simulator;
  std::vector<Simulation> all;
  for (std::size_t i = 0; i < runs.size(); ++i) all.push_back(simulator.simulate(runs[i], steps[i]));
  return all;
}

std::optional<SimulatedTime> simulate_first_steps(const Run& run, Step steps) {
  Run first = run;
  first.budget = {.steps = steps};
  return simulate_all({std::move(first)}).front().time;
}

std::int64_t work_of(const Run& run, Step steps) {
  constexpr std::int64_t meeting = 15;  // cost of a worker's step without micro-batches, in multiples of a micro-batch
  return steps.value() * run.cluster.workers * (run.cluster.micro_batches + meeting);
}

SimulatedTime simulate_time(const Run& run, Step at_most) {
  Budget budget = run.budget;
  budget.steps = std::min(budget.steps.value_or(at_most), at_most);
  Waypoints waypoints(run.training.samples_per_micro_batch);
  const RunTotals totals = run_time_only(run, budget, waypoints);
  const std::vector<Waypoint>& all = waypoints.all;
  const Waypoint& last = all.back();
  const double end_s = to_seconds(totals.end);
  if (last.step == 0 || end_s == 0) throw RunFailure("its simulation has completed no step");

  // Extrapolates the rest of the run at the pace after the method has settled.
  const auto settled_step = static_cast<double>(settles_after(run).value());
  std::size_t first = 0;
  while (first + 1 < all.size() && all[first].step < settled_step) ++first;
  if (first + 1 == all.size()) first = 0;
  const Rates steady = rates_between(all[first], last);

  SimulatedTime result;
  result.communication_share = share_of({Activity::communicate}, totals.accounts);
  result.computing_share = share_of({Activity::compute, Activity::discarded}, totals.accounts);
  result.longest_round_s = waypoints.longest_s;
  const double kept = sum_of(totals.kept);
  result.whole = has_ended(run, at_most, last, kept, totals);
  const std::vector<Waypoint> finest = waypoints.finest();
  const auto settled = std::ranges::find_if(finest, [&](const Waypoint& w) { return w.step >= all[first].step; });
  const auto from = static_cast<std::size_t>(settled - finest.begin());
  result.error_s = standard_error_of(&Rates::step_s, finest, from);
  result.pace_error = standard_error_of(&Rates::micro_batches_per_s, finest, from);
  if (result.whole) {  // like a run's summary, this includes rows after the last publication
    const double steps = std::max(last.step, finest.back().step);
    result.steps = static_cast<Step::Rep>(steps);
    result.total_time_s = end_s;
    result.step_time_s = end_s / steps;
    result.micro_batches_per_s = kept / end_s;
    result.drop_rate = drop_rate(totals, waypoints, end_s, 0);
    result.rounds = static_cast<double>(waypoints.rows.size());
    result.bytes = static_cast<double>(totals.bytes.value());
    return result;
  }
  result.steps = static_cast<Step::Rep>(last.step);
  result.total_time_s = end_of_budget(run, last, steady);
  const double rest_s = std::max(result.total_time_s.value_or(last.time_s) - last.time_s, 0.0);
  const double whole_s = last.time_s + rest_s;
  result.step_time_s = whole_s / (last.step + rest_s / steady.step_s);
  result.micro_batches_per_s = (last.micro_batches + rest_s * steady.micro_batches_per_s) / whole_s;
  result.drop_rate = drop_rate(totals, waypoints, all[first].time_s, rest_s / (last.time_s - all[first].time_s));
  const auto rows_until = [&](double time_s) {
    return static_cast<double>(
        std::ranges::count_if(waypoints.rows, [&](const auto& row) { return row.time_s <= time_s; }));
  };
  const double rest_steps = rest_s / steady.step_s, settled_steps = last.step - all[first].step;
  const double settled_rows = rows_until(last.time_s) - rows_until(all[first].time_s);
  result.rounds = rows_until(last.time_s) + rest_steps / settled_steps * settled_rows;
  result.bytes = last.bytes + rest_steps / settled_steps * (last.bytes - all[first].bytes);
  // Communication and computing take a constant time per step, while the time per step changes.
  const double slower = (last.time_s / last.step) / result.step_time_s;
  result.communication_share *= slower;
  result.computing_share *= slower;
  return result;
}

std::optional<SimulatedTime> sample_time(const Run& run, const ScheduledRounds& rounds, Step affordable) {
  constexpr int most_corrections = 6;
  constexpr double close = 1e-3;
  if (!rounds.are_known() || run.cluster.outages || !run.cluster.data_of.empty()) return std::nullopt;
  // If the budget does not limit steps, their number depends on the pace. The pace also depends on their number,
  // because rounds change over the run. The secant method finds a number of steps that agrees with its pace.
  std::optional<std::pair<double, double>> before;  // the previous number of steps, and how many were missing
  Step all = run.budget.steps.value_or(planned_steps(run).value_or(affordable));
  for (int correction = 1;; ++correction) {
    if (!rounds.are_countable(all)) return std::nullopt;
    const auto sample = SampleOfRounds::of(run, rounds, all, affordable);
    if (!sample) return std::nullopt;
    SimulatedTime result = sample->time();
    const Communicated communicated = rounds.until(all);
    result.rounds = static_cast<double>(communicated.rounds);
    result.bytes = static_cast<double>(communicated.bytes.value());
    const auto steps = static_cast<double>(all.value());
    result.total_time_s = end_of_budget(run, {},
                                        {.step_s = result.step_time_s,
                                         .micro_batches_per_s = result.micro_batches_per_s,
                                         .bytes_per_s = result.bytes / steps / result.step_time_s});
    if (!result.total_time_s) return std::nullopt;
    const double missing = *result.total_time_s / result.step_time_s - steps;
    if (std::abs(missing) <= steps * std::max(close, *result.error_s / result.step_time_s)) return result;
    if (correction == most_corrections) return std::nullopt;
    double next = steps + missing;
    if (before && before->second != missing)
      next = steps - missing * (steps - before->first) / (missing - before->second);
    before = {steps, missing};
    all = static_cast<Step::Rep>(std::llround(std::clamp(next, 1.0, 1e15)));
  }
}

std::string magnitude_notes(std::span<const Run> runs) {
  Notes notes;
  std::set<std::pair<std::size_t, KeyValues>> seen;
  std::int64_t left = most_noted_work;
  for (const Run& run : runs) {
    if (run.cluster.to_be_measured || !seen.emplace(run.method_index, run.sweep).second) continue;
    const Step steps = steps_within(run, left);
    if (steps == 0) continue;
    left -= work_of(run, steps);
    const auto simulated = simulate_first_steps(run, steps);
    if (!simulated || simulated->rounds == 0 || !simulated->total_time_s) continue;
    SimulatedSteps simulated_steps{.drop_rate = simulated->drop_rate,
                                   .communication_share = simulated->communication_share,
                                   .computing_share = simulated->computing_share,
                                   .round = longest_round(simulated->longest_round_s),
                                   .steps = fmt::format("{} simulated steps", simulated->steps.value())};
    set_link_shares(simulated_steps, run, simulated->bytes, *simulated->total_time_s);
    notes.add(run, simulated_steps);
  }
  return notes.text();
}

std::string magnitude_notes(std::span<const Run> runs, const std::vector<std::optional<RunSummary>>& summaries) {
  Notes notes;
  std::int64_t left = most_noted_work;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& summary = summaries[i];
    if (!summary || summary->status != RunStatus::finished || summary->rounds == 0) continue;
    SimulatedSteps simulated_steps{
        .drop_rate = summary->drop_rate(),
        .communication_share = share_of({Activity::communicate}, summary->accounts),
        .computing_share = share_of({Activity::compute, Activity::discarded}, summary->accounts),
        .round = round_of(runs[i], *summary, left),
        .steps = fmt::format("{} steps", summary->steps)};
    set_link_shares(simulated_steps, runs[i], static_cast<double>(summary->communicated_bytes), summary->end_time_s);
    notes.add(runs[i], simulated_steps);
  }
  return notes.text();
}

}  // namespace syncopate
