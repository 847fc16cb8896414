// Tuning: chooses the next trials by the results of earlier ones, and makes the runs with the best settings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "experiments/execution/execution.hpp"
#include "experiments/execution/runner.hpp"
#include "experiments/sections/experiment.hpp"
#include "results/found_runs.hpp"
#include "results/summary.hpp"

namespace syncopate {

struct RunsMade {
  int status = 0;                                    // exit status as of run_experiment
  std::vector<std::optional<RunSummary>> summaries;  // by run; complete on rank 0
};
// Makes an experiment's runs. `later`: runs that will follow, for the plan.
using MakeRuns = std::function<RunsMade(const Experiment& part, const RunOptions& options, std::span<const Run> later)>;

// For an experiment with [tune]: makes missing trials, extends grids, writes tuning.json beside the runs, and makes the
// runs with the best settings. Under MPI all ranks call it and choose by rank 0's results. Returns the exit status,
// which is also 1 if a method has no setting that completed all trials.
int run_tuned(const Experiment& experiment, const RunOptions& options, const ExecutionBackend& backend,
              const MakeRuns& make);

// The trials of the grids as they are written.
std::vector<Run> first_trials(const Experiment& experiment);

// The state of tuning according to the trials on the disk, on virtual time.
struct TuningSoFar {
  std::vector<Run> trials;                 // including those of extended grids
  std::optional<std::vector<Run>> runs{};  // with the best settings; none until all trials have ended
};
TuningSoFar tuning_so_far(const Experiment& experiment, const std::string& results_directory);

// The number by which a trial's setting is judged.
struct TrialValue {
  std::optional<double> value{};      // value of the measure; if the trial missed its target, value until its end
  std::optional<double> missed_by{};  // if the trial missed its target: distance of its last validation from it
};
// Empty for a run that has not finished.
TrialValue value_of_trial(const RunSummary& summary, const std::string& measure);

class Tuner {
 public:
  using Place = std::vector<std::size_t>;  // place of a setting in its grid: index of the value on each axis

  struct Trial {
    std::size_t group = 0;
    Place place;
    Run run;
  };

  // Tunes only these groups of the plan.
  Tuner(std::shared_ptr<const TuningPlan> plan, std::set<std::size_t> groups);

  // Trials without a result, by group, setting and seed.
  std::vector<Trial> open() const;

  // Notes a trial's result; without a value it counts as the worst.
  void take(const Trial& trial, const std::string& status, const TrialValue& value);

  // Call it when no trial is open. If a group's best setting has a number at an edge of its grid, adds the next number
  // beyond the edge, in each combination with other values, up to plan.extensions times. The file's keys must allow the
  // number. Returns false if no grid has grown.
  bool extend();

  // The best setting by group: the one with the best mean over seeds. If trials missed their target, means are
  // restricted to a common horizon (results/statistics.hpp). Among equal means, the setting with more trials that
  // reached the target is better, then the one that missed it by less, then the first of the grid. Leaves out groups
  // without a setting whose trials all have a value.
  std::map<std::size_t, Setting> chosen() const;

  // Everything that was tried, by group.
  std::vector<TunedMethod> results() const;

 private:
  struct State {
    std::vector<VariedKey> axes;
    int extensions = 0;
    std::set<std::pair<std::size_t, bool>> ends{};  // axes that cannot grow below (false) or above (true)
    std::set<std::size_t> extended{};               // axes that have been extended
    std::map<std::pair<Place, std::uint64_t>, TunedTrial> trials{};
  };

  Setting setting(const State& state, const Place& place) const;
  // The quality of a setting.
  struct Rank {
    double mean = 0;
    std::size_t reached = 0;  // trials that reached their target
    double missed_by = 0;     // sum over the other trials
  };
  std::optional<double> horizon(const State& state) const;  // none if no trial missed its target
  std::optional<Rank> rank(const State& state, const Place& place) const;
  bool is_better(const Rank& a, const Rank& b) const;
  std::optional<Place> best(const State& state) const;
  bool extend(std::size_t group, State& state);
  bool is_allowed(std::size_t group, const State& state, std::size_t axis, const TomlNode& value) const;
  std::optional<TomlNode> next_allowed(std::size_t group, const State& state, std::size_t axis, bool above) const;

  std::shared_ptr<const TuningPlan> plan_;
  bool more_is_better_;
  std::map<std::size_t, State> states_;  // by group
};

}  // namespace syncopate
