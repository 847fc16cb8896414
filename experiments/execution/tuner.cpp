#include "experiments/execution/tuner.hpp"

#include <algorithm>
#include <utility>

#include "experiments/sections/experiment.hpp"
#include "results/rows/measures.hpp"

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

}  // namespace

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

void Tuner::take(const Trial& trial, const std::string& status, std::optional<double> value) {
  states_.at(trial.group).trials[{trial.place, trial.run.seed}] = {
      .seed = trial.run.seed, .hash = trial.run.hash, .status = status, .value = value};
}

std::optional<double> Tuner::mean(const State& state, const Place& place) const {
  double sum = 0;
  for (const std::uint64_t seed : plan_->seeds) {
    const auto trial = state.trials.find({place, seed});
    if (trial == state.trials.end() || !trial->second.value) return {};
    sum += *trial->second.value;
  }
  return sum / static_cast<double>(plan_->seeds.size());
}

std::optional<Tuner::Place> Tuner::best(const State& state) const {
  std::optional<Place> best;
  double best_mean = 0;
  for (const Place& place : places(state)) {
    const std::optional<double> found = mean(state, place);
    if (!found || (best && !(more_is_better_ ? *found > best_mean : *found < best_mean))) continue;
    best = place;
    best_mean = *found;
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
    TunedMethod method{.method = plan_->groups[group].method, .point = plan_->groups[group].point};
    const std::optional<Place> chosen = best(state);
    for (const std::size_t axis : state.extended) method.extended.push_back(state.axes[axis].key);
    for (const Place& place : places(state)) {
      TriedSetting tried{.values = {}, .mean = mean(state, place)};
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
