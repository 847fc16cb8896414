#include "experiments/execution/tuner.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "experiments/sections/experiment.hpp"
#include "results/rows/measures.hpp"
#include "results/statistics/restricted_time.hpp"

namespace syncopate {
namespace {

// At which edges the value is: below, above. Not where there is one value alone, or one that is no number.
std::vector<bool> edges_of(const TunedAxis& axis, std::size_t value) {
  const auto numbers = numbers_of(axis);
  if (!numbers || numbers->size() < 2) return {};
  std::vector<bool> edges;
  if ((*numbers)[value] == std::ranges::min(*numbers)) edges.push_back(false);
  if ((*numbers)[value] == std::ranges::max(*numbers)) edges.push_back(true);
  return edges;
}

// "time_to_target_s": until a target that a run may miss.
bool goes_to_target(const std::string& measure) { return measure.find("to_target") != std::string::npos; }

// By its last validation, or test of a model without data; 0 where that is no number, or met the target after all.
double shortfall(const RunSummary& summary) {
  const TimeToTarget& target = *summary.time_to_target;
  const auto last = [&summary](const char* validated, const char* tested) {
    const auto value = measure_named(validated)->value(summary);
    return value ? value : measure_named(tested)->value(summary);
  };
  double missed_by = 0;
  if (target.target_accuracy) {
    if (const auto accuracy = last("final_validation_accuracy", "final_test_accuracy"))
      missed_by = *target.target_accuracy - *accuracy;
  } else if (const auto loss = last("final_validation_loss", "final_test_loss"); loss && target.target_loss) {
    missed_by = *loss - *target.target_loss;
  }
  return std::isfinite(missed_by) ? std::max(0.0, missed_by) : 0;
}

// What the measure would be at least, had the run gone on.
double until_end(const RunSummary& summary, const std::string& measure) {
  if (measure == "steps_to_target") return static_cast<double>(summary.steps);
  if (measure == "samples_to_target") return static_cast<double>(summary.samples);
  return summary.end_time_s;
}

}  // namespace

TrialValue value_of_trial(const RunSummary& summary, const std::string& measure) {
  if (summary.status != RunStatus::finished) return {};
  const auto value = measure_named(measure)->value(summary);
  if (value) return std::isfinite(*value) ? TrialValue{value, {}} : TrialValue{};
  if (!goes_to_target(measure) || !summary.time_to_target) return {};
  return {until_end(summary, measure), shortfall(summary)};
}

Tuner::Tuner(std::shared_ptr<const TuningPlan> plan, std::set<std::size_t> groups)
    : plan_(std::move(plan)), more_is_better_(measure_named(plan_->measure)->better == Better::more) {
  for (const std::size_t group : groups) states_[group].axes = plan_->groups[group].axes;
}

std::vector<Tuner::Place> Tuner::places(const State& state) const {
  std::vector<Place> places = {{}};
  for (const TunedAxis& axis : state.axes) {
    std::vector<Place> longer;
    for (const Place& place : places)
      for (std::size_t value = 0; value < axis.values.size(); ++value) {
        longer.push_back(place);
        longer.back().push_back(value);
      }
    places = std::move(longer);
  }
  return places;
}

Setting Tuner::setting(const State& state, const Place& place) const {
  Setting setting;
  for (std::size_t axis = 0; axis < place.size(); ++axis) setting.push_back(state.axes[axis].values[place[axis]]);
  return setting;
}

std::vector<Tuner::Trial> Tuner::open() const {
  std::vector<Trial> open;
  for (const auto& [group, state] : states_)
    for (const Place& place : places(state))
      for (const std::uint64_t seed : plan_->seeds)
        if (!state.trials.contains({place, seed}))
          open.push_back({group, place, plan_->trial(group, setting(state, place), seed)});
  return open;
}

void Tuner::take(const Trial& trial, const std::string& status, const TrialValue& value) {
  states_.at(trial.group).trials[{trial.place, trial.run.seed}] = {.seed = trial.run.seed,
                                                                   .hash = trial.run.hash,
                                                                   .status = status,
                                                                   .value = value.value,
                                                                   .missed_by = value.missed_by};
}

std::optional<double> Tuner::horizon(const State& state) const {
  std::vector<TimeToReach> times;
  for (const auto& [of, trial] : state.trials)
    if (trial.value) times.push_back({*trial.value, !trial.missed_by});
  if (std::ranges::all_of(times, &TimeToReach::is_reached)) return {};
  return common_horizon_s(times);
}

std::optional<Tuner::Rank> Tuner::rank(const State& state, const Place& place) const {
  Rank rank;
  std::vector<TimeToReach> values;
  for (const std::uint64_t seed : plan_->seeds) {
    const auto found = state.trials.find({place, seed});
    if (found == state.trials.end() || !found->second.value) return {};
    const TunedTrial& trial = found->second;
    values.push_back({*trial.value, !trial.missed_by});
    rank.reached += trial.missed_by ? 0 : 1;
    rank.missed_by += trial.missed_by.value_or(0);
  }
  const std::optional<double> restricted_to = horizon(state);
  const std::vector<double> restricted =
      restricted_to ? restricted_times(values, *restricted_to).times_s : std::vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) rank.mean += restricted_to ? restricted[i] : values[i].time_s;
  rank.mean /= static_cast<double>(values.size());
  return rank;
}

bool Tuner::is_better(const Rank& a, const Rank& b) const {
  if (a.mean != b.mean) return more_is_better_ ? a.mean > b.mean : a.mean < b.mean;
  return a.reached != b.reached ? a.reached > b.reached : a.missed_by < b.missed_by;
}

std::optional<Tuner::Place> Tuner::best(const State& state) const {
  std::optional<Place> best;
  Rank best_rank;
  for (const Place& place : places(state)) {
    const std::optional<Rank> found = rank(state, place);
    if (!found || (best && !is_better(*found, best_rank))) continue;
    best = place;
    best_rank = *found;
  }
  return best;
}

// With all values of the other axes.
bool Tuner::is_allowed(std::size_t group, const State& state, std::size_t axis, const TomlNode& value) const {
  try {
    for (const Place& place : places(state)) {
      if (place[axis] != 0) continue;
      Setting tried = setting(state, place);
      tried[axis] = value;
      plan_->trial(group, tried, plan_->seeds.front());
    }
    return true;
  } catch (const ConfigurationFault&) {
    return false;
  }
}

// The next value, or one on the way to it where that is beyond what the key allows: 0.95 after a momentum of 0.9.
std::optional<TomlNode> Tuner::next_allowed(std::size_t group, const State& state, std::size_t axis, bool above) const {
  for (const double share : {1.0, 1.0 / 2, 1.0 / 4, 1.0 / 8}) {
    const std::optional<TomlNode> next = next_beyond(state.axes[axis], above, share);
    if (next && is_allowed(group, state, axis, *next)) return next;
  }
  return {};
}

bool Tuner::extend(std::size_t group, State& state) {
  const std::optional<Place> at = best(state);
  if (!at || state.extensions >= plan_->extensions) return false;
  std::vector<std::pair<std::size_t, TomlNode>> further;
  for (std::size_t axis = 0; axis < state.axes.size(); ++axis)
    for (const bool above : edges_of(state.axes[axis], (*at)[axis])) {
      if (state.ends.contains({axis, above})) continue;
      if (const auto next = next_allowed(group, state, axis, above))
        further.emplace_back(axis, *next);
      else
        state.ends.emplace(axis, above);
    }
  for (const auto& [axis, value] : further) {
    state.axes[axis].values.push_back(value);
    state.extended.insert(axis);
  }
  if (!further.empty()) ++state.extensions;
  return !further.empty();
}

bool Tuner::extend() {
  bool has_grown = false;
  for (auto& [group, state] : states_) has_grown |= extend(group, state);
  return has_grown;
}

std::map<std::size_t, Setting> Tuner::chosen() const {
  std::map<std::size_t, Setting> chosen;
  for (const auto& [group, state] : states_)
    if (const std::optional<Place> at = best(state)) chosen.emplace(group, setting(state, *at));
  return chosen;
}

std::vector<TunedMethod> Tuner::results() const {
  std::vector<TunedMethod> results;
  for (const auto& [group, state] : states_) {
    TunedMethod method{
        .method = plan_->groups[group].method, .point = plan_->groups[group].point, .horizon = horizon(state)};
    const std::optional<Place> chosen = best(state);
    for (const std::size_t axis : state.extended) method.extended.push_back(state.axes[axis].key);
    for (const Place& place : places(state)) {
      const std::optional<Rank> found = rank(state, place);
      TriedSetting tried{.values = {}, .mean = found ? std::optional(found->mean) : std::nullopt};
      for (std::size_t axis = 0; axis < place.size(); ++axis)
        tried.values.emplace_back(state.axes[axis].key,
                                  label_of(state.axes[axis], state.axes[axis].values[place[axis]]));
      for (const std::uint64_t seed : plan_->seeds)
        if (const auto trial = state.trials.find({place, seed}); trial != state.trials.end())
          tried.trials.push_back(trial->second);
      if (chosen == place) method.chosen = method.settings.size();
      method.settings.push_back(std::move(tried));
    }
    for (std::size_t axis = 0; chosen && axis < state.axes.size(); ++axis)
      for (const bool above : edges_of(state.axes[axis], (*chosen)[axis]))
        if (!state.ends.contains({axis, above})) method.at_edge.push_back(state.axes[axis].key);
    results.push_back(std::move(method));
  }
  return results;
}

}  // namespace syncopate
