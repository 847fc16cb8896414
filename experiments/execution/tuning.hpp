// Tuning ([tune]): executes trials of each method with several settings, and then the runs with the best settings. New
// trials depend on the results of earlier ones.
#pragma once

#include <cstddef>
#include <cstdint>
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
  int status = 0;                                    // exit status as in run_experiment
  std::vector<std::optional<RunSummary>> summaries;  // by run; complete on rank 0
};
// Executes an experiment's runs without tuning. `later`: runs that will follow, to be printed in the plan.
RunsMade make_runs(const Experiment& experiment, const RunOptions& options, const ExecutionBackend& backend,
                   std::span<const Run> later = {});

// Executes an experiment with [tune]: executes missing trials, extends grids, writes tuning.json into the experiment's
// directory, and executes the runs with the best settings. Under MPI all ranks call this function, and rank 0's results
// decide. Returns the exit status of run_experiment, or 1 if a method has no setting that completed all trials.
int run_tuned(const Experiment& experiment, const RunOptions& options, const ExecutionBackend& backend);

// Returns the trials of the grids in the file, before any grid grows. Empty if the experiment does not tune.
std::vector<Run> first_trials(const Experiment& experiment);

// The state of tuning according to the simulated trials in the results directory.
struct TuningSoFar {
  std::vector<Run> trials;                 // including trials of extended grids
  std::optional<std::vector<Run>> runs{};  // the runs with the best settings; nullopt until all trials have ended
};
TuningSoFar tuning_so_far(const Experiment& experiment, const std::string& results_directory);

// The number by which a trial's setting is judged.
struct TrialValue {
  std::optional<double> value{};      // the measure; if the trial missed its target: time, steps or samples to its end
  std::optional<double> missed_by{};  // if the trial missed its target: distance of its last validation from it
};
// Returns the value of a finished run. `value` is missing if the run has not finished or lacks the measure.
TrialValue value_of_trial(const RunSummary& summary, const std::string& measure);

class Tuner {
 public:
  using Place = std::vector<std::size_t>;  // place of a setting in its grid: index of the value on each axis

  struct Trial {
    std::size_t group = 0;
    Place place;
    Run run;
  };

  // Tunes only these `groups` of the plan.
  Tuner(std::shared_ptr<const TuningPlan> plan, std::set<std::size_t> groups);

  // Returns the trials without a result, ordered by group, setting and seed.
  std::vector<Trial> open() const;

  // Records a trial's result. A setting with a trial without a value cannot be the best.
  void take(const Trial& trial, const std::string& status, const TrialValue& value);

  // Call this when no trial is open. A group's grid has an axis of values for each tuned key. If the group's best
  // setting has the first or last number of an axis, adds the next number beyond it to this axis. Each grid grows at
  // most plan.extensions times, and only by numbers that the file's keys allow. Returns false if no grid has grown.
  bool extend();

  // Returns the best setting of each group: the one with the best mean over seeds. If trials missed their target, means
  // are restricted to a common horizon (results/statistics.hpp). If means are equal, the setting with more trials that
  // reached the target is better. If these numbers are equal, too, the setting that missed the target by less is
  // better, or else the first one in the grid. Leaves out groups without a setting whose trials all have a value.
  std::map<std::size_t, Setting> chosen() const;

  // Returns all trials with their results, by group.
  std::vector<TunedMethod> results() const;

 private:
  struct State {
    std::vector<VariedKey> axes;
    int extensions = 0;
    std::set<std::pair<std::size_t, bool>>
        ends{};                        // axes that cannot grow further, downwards (false) or upwards (true)
    std::set<std::size_t> extended{};  // axes that have been extended
    std::map<std::pair<Place, std::uint64_t>, TunedTrial> trials{};
  };

  Setting setting(const State& state, const Place& place) const;
  // The quality of a setting over all seeds.
  struct Rank {
    double mean = 0;
    std::size_t reached = 0;  // number of trials that reached their target
    double missed_by = 0;     // sum over the trials that missed their target
  };
  std::optional<double> horizon(const State& state) const;  // nullopt if no trial missed its target
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
