#include "experiments/execution/tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "experiments/execution/ranks.hpp"
#include "experiments/sections/variation.hpp"
#include "results/result_table.hpp"
#include "results/statistics.hpp"
#include "workers/base/files.hpp"
#include "workers/base/process.hpp"
#include "workers/base/terminal_text.hpp"

namespace syncopate {

namespace {

std::set<std::size_t> groups_of(const Experiment& experiment) {
  std::set<std::size_t> groups;
  for (const Run& run : experiment.runs) groups.insert(experiment.tuning->group_of_run.at(run.hash));
  return groups;
}

// Removes the runs that --only has removed from the experiment.
void keep_wanted(std::vector<Run>& runs, const Experiment& experiment) {
  const auto identity = [](const Run& run) { return std::tuple(run.method_index, run.sweep, run.seed); };
  std::set<decltype(identity(runs.front()))> wanted;
  for (const Run& run : experiment.runs) wanted.insert(identity(run));
  std::erase_if(runs, [&](const Run& run) { return !wanted.contains(identity(run)); });
}

class TunedExperiment {
 public:
  TunedExperiment(const Experiment& experiment, const RunOptions& options, const ExecutionBackend& backend)
      : experiment_(experiment),
        options_(options),
        backend_(backend),
        tuner_(experiment.tuning, groups_of(experiment)) {}

  int run() {
    if (const int status = make_trials(); status != exit_success) return status;
    const bool all_are_tuned = report_untuned();
    const Tuning tuning = results();
    if (speaks()) replace_file(directory() / tuning_file(backend_.mpi != nullptr), to_json(tuning));
    const Experiment tuned = with_best_settings(tuning_lines(tuning));
    if (tuned.runs.empty()) return exit_failure;
    const int status = make_runs(tuned, options_, backend_).status;
    return status == exit_success && !all_are_tuned ? exit_failure : status;
  }

 private:
  bool speaks() const { return backend_.is_rank_0() && (!options_.sharing || options_.sharing->speaks); }
  std::filesystem::path directory() const { return experiment_directory(options_.results_directory, experiment_.name); }

  // Executes trials until no grid grows. Failed trials (exit status 1) are results; other errors end the tuning.
  int make_trials() {
    RunOptions options = options_;
    options.tables = false;
    do {
      const std::vector<Tuner::Trial> trials = tuner_.open();
      Experiment part;
      part.name = experiment_.name;
      part.file = experiment_.file;
      for (const Tuner::Trial& trial : trials) part.runs.push_back(trial.run);
      const RunsMade made = make_runs(part, options, backend_, experiment_.runs);
      if (made.status != exit_success && made.status != exit_failure) return made.status;
      for (std::size_t i = 0; i < trials.size(); ++i) take(trials[i], made.summaries[i]);
    } while (tuner_.extend());
    return exit_success;
  }

  void take(const Tuner::Trial& trial, const std::optional<RunSummary>& summary) {
    TrialValue value = summary ? value_of_trial(*summary, experiment_.tuning->measure) : TrialValue{};
    for (std::optional<double>* const number : {&value.value, &value.missed_by})
      *number = from_rank_0(backend_.together(), *number);
    const std::string status = summary ? to_string(summary->status) : "";
    if (summary && !value.value) reasons_.emplace(trial.group, summary->reason.empty() ? status : summary->reason);
    tuner_.take(trial, status, value);
  }

  bool report_untuned() {
    const auto chosen = tuner_.chosen();
    bool all = true;
    for (const std::size_t group : groups_of(experiment_)) {
      if (chosen.contains(group)) continue;
      all = false;
      const TuningGroup& of = experiment_.tuning->groups[group];
      if (speaks())
        standard_error.write(printable_lines(
            fmt::format("{}: skipped, since no setting has a {} in all of its trials; the first trial without it: {}\n",
                        run_label(of.method, of.point), experiment_.tuning->measure, reasons_[group])));
    }
    return all;
  }

  // Returns the results of tuning. Includes earlier results of methods that --only excludes.
  Tuning results() const {
    const TuningPlan& plan = *experiment_.tuning;
    Tuning tuning{.experiment = experiment_.name, .measure = plan.measure, .seeds = plan.seeds, .where = plan.where};
    const auto text = read_file(directory() / tuning_file(backend_.mpi != nullptr));
    const std::optional<Tuning> before = text ? tuning_from_json(*text) : std::nullopt;
    std::vector<TunedMethod> known = tuner_.results();
    if (before && before->measure == tuning.measure && before->seeds == tuning.seeds && before->where == tuning.where)
      known.insert(known.end(), before->methods.begin(), before->methods.end());
    for (const TuningGroup& group : plan.groups) {
      const auto found = std::ranges::find_if(known, [&group](const TunedMethod& method) {
        return method.method == group.method && method.point == group.point;
      });
      if (found != known.end()) tuning.methods.push_back(*found);
    }
    return tuning;
  }

  Experiment with_best_settings(std::string notes) const {
    Experiment tuned = experiment_;
    tuned.tuning = nullptr;
    tuned.notes = std::move(notes);
    if (groups_of(experiment_).size() < experiment_.tuning->groups.size() && tuned.differs.empty())
      tuned.differs = "for only some of its methods";
    tuned.runs = experiment_.tuning->runs(tuner_.chosen());
    tuned.hashes.clear();
    for (const Run& run : tuned.runs) tuned.hashes.push_back(run.hash);
    keep_wanted(tuned.runs, experiment_);
    return tuned;
  }

  const Experiment& experiment_;
  const RunOptions& options_;
  const ExecutionBackend& backend_;
  Tuner tuner_;
  std::map<std::size_t, std::string> reasons_;  // by group: why the first trial without a value has no value
};

std::vector<std::vector<std::size_t>> places(const std::vector<VariedKey>& axes) {
  return combinations(axes, [](const VariedKey& axis) { return axis.values.size(); });
}

// Returns the edges of the axis that have this value: false for the lower, true for the upper edge. Empty if the axis
// has only one value, or a value that is not a number.
std::vector<bool> edges_of(const VariedKey& axis, std::size_t value) {
  const auto numbers = numbers_of(axis);
  if (!numbers || numbers->size() < 2) return {};
  std::vector<bool> edges;
  if ((*numbers)[value] == std::ranges::min(*numbers)) edges.push_back(false);
  if ((*numbers)[value] == std::ranges::max(*numbers)) edges.push_back(true);
  return edges;
}

// Returns the distance to the target at the last validation (for a model without data, at the last test). Returns 0 if
// the target is met, or if the distance is not a number.
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

// Returns a lower bound of the measure for a run that ended before it reached its target.
double until_end(const RunSummary& summary, const std::string& measure) {
  if (measure == "steps_to_target") return static_cast<double>(summary.steps);
  if (measure == "samples_to_target") return static_cast<double>(summary.samples);
  return summary.end_time_s;
}

}  // namespace

int run_tuned(const Experiment& experiment, const RunOptions& options, const ExecutionBackend& backend) {
  return TunedExperiment(experiment, options, backend).run();
}

TuningSoFar tuning_so_far(const Experiment& experiment, const std::string& results_directory) {
  Tuner tuner(experiment.tuning, groups_of(experiment));
  TuningSoFar so_far;
  bool have_all_ended = true;
  do {
    for (const Tuner::Trial& trial : tuner.open()) {
      so_far.trials.push_back(trial.run);
      const auto directory = run_directory(results_directory, trial.run, false);
      const auto summary = damage_of(directory).empty() ? summary_of(directory, trial.run) : std::nullopt;
      have_all_ended = have_all_ended && summary;
      if (summary) tuner.take(trial, to_string(summary->status), value_of_trial(*summary, experiment.tuning->measure));
    }
  } while (have_all_ended && tuner.extend());
  if (!have_all_ended) return so_far;
  so_far.runs = experiment.tuning->runs(tuner.chosen());
  keep_wanted(*so_far.runs, experiment);
  return so_far;
}

std::vector<Run> first_trials(const Experiment& experiment) {
  std::vector<Run> runs;
  if (!experiment.tuning) return runs;
  for (Tuner::Trial& trial : Tuner(experiment.tuning, groups_of(experiment)).open())
    runs.push_back(std::move(trial.run));
  return runs;
}

TrialValue value_of_trial(const RunSummary& summary, const std::string& measure) {
  if (summary.status != RunStatus::finished) return {};
  const auto value = measure_named(measure)->value(summary);
  if (value) return std::isfinite(*value) ? TrialValue{value, {}} : TrialValue{};
  if (measure.find("to_target") == std::string::npos || !summary.time_to_target) return {};
  return {until_end(summary, measure), shortfall(summary)};
}

Tuner::Tuner(std::shared_ptr<const TuningPlan> plan, std::set<std::size_t> groups)
    : plan_(std::move(plan)), more_is_better_(measure_named(plan_->measure)->better == Better::more) {
  for (const std::size_t group : groups) states_[group].axes = plan_->groups[group].axes;
}

Setting Tuner::setting(const State& state, const Place& place) const {
  Setting setting;
  for (std::size_t axis = 0; axis < place.size(); ++axis) setting.push_back(state.axes[axis].values[place[axis]]);
  return setting;
}

std::vector<Tuner::Trial> Tuner::open() const {
  std::vector<Trial> open;
  for (const auto& [group, state] : states_)
    for (const Place& place : places(state.axes))
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
  const double horizon_s = horizon(state).value_or(std::numeric_limits<double>::infinity());
  for (const double value : restricted_times(values, horizon_s).times_s) rank.mean += value;
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
  for (const Place& place : places(state.axes)) {
    const std::optional<Rank> found = rank(state, place);
    if (!found || (best && !is_better(*found, best_rank))) continue;
    best = place;
    best_rank = *found;
  }
  return best;
}

// Whether the file is valid with this value, in combination with all values of the other axes.
bool Tuner::is_allowed(std::size_t group, const State& state, std::size_t axis, const TomlNode& value) const {
  try {
    for (const Place& place : places(state.axes)) {
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

// Returns the next value beyond the edge. If the key does not allow it, returns a value closer to the edge, such as a
// momentum of 0.95 after 0.9.
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
    for (const Place& place : places(state.axes)) {
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
