#include "experiments/execution/time_simulation.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <vector>

#include "experiments/execution/run_on_cluster.hpp"
#include "results/run/run_prediction.hpp"

namespace syncopate {
namespace {

// Where the run was after each publication: that of the global model, at which the budget is counted.
struct Waypoint {
  double step = 0;
  double time_s = 0;
  double micro_batches = 0;
  double bytes = 0;
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
    // Several models of one step: the last counts.
    if (all.back().step == step && all.size() > 1) all.pop_back();
    all.push_back({step, to_seconds(publication.time), static_cast<double>(publication.samples) / samples_,
                   static_cast<double>(publication.bytes.value())});
  }

  // The rows of steps.csv.
  struct Counts {
    double step;
    double time_s;
    double kept;
    double dropped;
  };
  std::vector<Counts> rows{};
  double longest_s = 0;
  std::vector<Waypoint> all{{}};  // ascending; the first is the start

  // Steps, times and micro-batches alone, of rows or publications, whichever are more.
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

// The pace between two waypoints.
struct Rates {
  double step_s = 0;
  double micro_batches_per_s = 0;
  double bytes_per_s = 0;
};

Rates rates_between(const Waypoint& from, const Waypoint& to) {
  const double time_s = to.time_s - from.time_s;
  return {time_s / (to.step - from.step), (to.micro_batches - from.micro_batches) / time_s,
          (to.bytes - from.bytes) / time_s};
}

// Standard error of a rate by the means of batches of consecutive steps, which are nearly independent
// also where single steps are not. A pace that changes for good in the course of the run is part of it.
std::optional<double> standard_error(double Rates::*rate, const std::vector<Waypoint>& all, std::size_t first) {
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

// When a run that has come so far, and goes on at this pace, meets the first limit of its budget.
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

// Whether what ended it was not the number of steps that are simulated at most. What is published may be of an earlier
// step than workers have come to.
bool has_ended(const Run& run, Step at_most, const Waypoint& last, double kept, const RunTotals& totals) {
  const Budget& budget = run.budget;
  if (budget.steps && at_most >= *budget.steps) return true;
  if (budget.seconds && to_seconds(totals.end) >= *budget.seconds) return true;
  if (budget.bytes && totals.bytes >= *budget.bytes) return true;
  const double samples = kept * static_cast<double>(run.training.samples_per_micro_batch);
  if (budget.samples && samples >= static_cast<double>(*budget.samples)) return true;
  return !run.cluster.data_of.empty() && last.step < static_cast<double>(at_most.value());  // data may be used up
}

RunTotals run_time_only(const Run& run, const Budget& budget, RunObserver& observer) {
  RunTraining nothing(run, nullptr, 0);
  const auto cluster = make_simulated_cluster(run, *nothing.training, &observer, nullptr);
  RunContext context = context_of(run, *cluster, *nothing.training, &observer);
  context.budget = budget;
  return run_algorithm(*run.algorithm, context);
}

// Micro-batches that were lost, as a share of those that were not or were: at first, and at the pace of the rest.
double drop_rate(const RunTotals& totals, const Waypoints& waypoints, double settled_s, double times_the_rest) {
  const auto sum = [](const std::vector<std::int64_t>& counts) {
    double result = 0;
    for (const std::int64_t count : counts) result += static_cast<double>(count);
    return result;
  };
  double kept = sum(totals.kept), dropped = sum(totals.dropped);
  for (const auto& round : waypoints.rows) {
    if (round.time_s <= settled_s) continue;
    kept += times_the_rest * round.kept;
    dropped += times_the_rest * round.dropped;
  }
  return kept + dropped > 0 ? dropped / (kept + dropped) : 0;
}

double share_of(std::initializer_list<Activity> activities, const RunTotals& totals) {
  double spent_s = 0, all_s = 0;  // more than 292 years, where there are very many workers
  for (const Account& account : totals.accounts) {
    for (const Activity activity : activities) spent_s += to_seconds(account[activity]);
    all_s += to_seconds(account.total());
  }
  return all_s > 0 ? spent_s / all_s : 0;
}

}  // namespace

std::int64_t work_of(const Run& run, Step steps) {
  constexpr std::int64_t meeting = 15;  // what a worker's step costs beside its micro-batches
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
  if (last.step == 0 || end_s == 0) throw RunFailure("its simulation has come to no step");

  // The pace of the rest is that after the method has settled.
  const auto settled_step = static_cast<double>(settles_after(run).value());
  std::size_t first = 0;
  while (first + 1 < all.size() && all[first].step < settled_step) ++first;
  if (first + 1 == all.size()) first = 0;
  const Rates steady = rates_between(all[first], last);

  const double communicating = share_of({Activity::communicate}, totals);
  const double computing = share_of({Activity::compute, Activity::discarded}, totals);
  SimulatedTime result;
  result.longest_round_s = waypoints.longest_s;
  const auto kept = static_cast<double>(std::accumulate(totals.kept.begin(), totals.kept.end(), std::int64_t{0}));
  result.whole = has_ended(run, at_most, last, kept, totals);
  const std::vector<Waypoint> finest = waypoints.finest();
  const auto settled = std::ranges::find_if(finest, [&](const Waypoint& w) { return w.step >= all[first].step; });
  const auto from = static_cast<std::size_t>(settled - finest.begin());
  result.error_s = standard_error(&Rates::step_s, finest, from);
  result.pace_error = standard_error(&Rates::micro_batches_per_s, finest, from);
  if (result.whole) {  // as its summary will count, also what comes after the last publication
    const double steps = std::max(last.step, finest.back().step);
    result.steps = static_cast<Step::Rep>(steps);
    result.total_time_s = end_s;
    result.step_time_s = end_s / steps;
    result.micro_batches_per_s = kept / end_s;
    result.drop_rate = drop_rate(totals, waypoints, end_s, 0);
    result.communication_share = communicating;
    result.computing_share = computing;
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
  // As much per step at the pace of the rest.
  const double slower = (last.time_s / last.step) / result.step_time_s;
  result.communication_share = communicating * slower;
  result.computing_share = computing * slower;
  return result;
}

}  // namespace syncopate
