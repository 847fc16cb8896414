// The course of tuning: which trials are to be made next, by what those that were made have shown. It runs nothing.
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

// An experiment with [tune]: its trials, and then its runs with the best settings.
struct RunsMade {
  int status = 0;                                    // as run_experiment's
  std::vector<std::optional<RunSummary>> summaries;  // run by run; complete on rank 0
};
// Makes an experiment's runs. `later`: those that will follow, for the plan.
using MakeRuns = std::function<RunsMade(const Experiment& part, const RunOptions& options, std::span<const Run> later)>;

// Makes the trials that are missing, extends grids, writes tuning.json beside the runs, and makes the runs. Under MPI
// all ranks call it; they choose by what rank 0 has found. The exit status; 1 also where a method has no setting of
// which all trials came to their end.
int run_tuned(const Experiment& experiment, const RunOptions& options, const Machinery& machinery,
              const MakeRuns& make);

// The trials of the grids as they are written.
std::vector<Run> first_trials(const Experiment& experiment);

// What trials on the disk, on virtual time, have shown so far.
struct TuningSoFar {
  std::vector<Run> trials;                 // with those of grids that have grown
  std::optional<std::vector<Run>> runs{};  // with the best settings; nothing while a trial has not ended
};
TuningSoFar tuning_so_far(const Experiment& experiment, const std::string& results_directory);

// What settings are judged by.
struct TrialValue {
  std::optional<double> value{};      // of the measure; of a trial that missed its target, until its end
  std::optional<double> missed_by{};  // of such a trial: how far its last validation is from the target
};
// Of a run that was not finished nothing.
TrialValue value_of_trial(const RunSummary& summary, const std::string& measure);

class Tuner {
 public:
  using Place = std::vector<std::size_t>;  // of a setting in its grid: which value of each axis

  struct Trial {
    std::size_t group = 0;
    Place place;
    Run run;
  };

  // Tunes these of the plan's groups.
  Tuner(std::shared_ptr<const TuningPlan> plan, std::set<std::size_t> groups);

  // Those of which nothing is known yet, group by group, setting by setting, seed by seed.
  std::vector<Trial> open() const;

  // What came of one; without a value it counts as the worst.
  void take(const Trial& trial, const std::string& status, const TrialValue& value);

  // Once nothing is open: where the best setting of a group has a number at an edge of its grid, the grid gets the next
  // number beyond, in each combination with the others; up to plan.extensions times. False where no grid has grown. A
  // number that the file's keys do not allow is none; the edge is then where the key ends.
  bool extend();

  // The best setting by group: of the best mean over seeds, of equal ones the first of the grid. Where trials missed
  // their target, means are restricted to when all trials of the group are known (results/statistics.hpp);
  // of equal ones that of which more trials reached the target is better, then the one that missed it by less. Groups
  // without a setting of which all trials have a value are left out.
  std::map<std::size_t, Setting> chosen() const;

  // All that was tried, in the order of the groups.
  std::vector<TunedMethod> results() const;

 private:
  struct State {
    std::vector<TunedAxis> axes;
    int extensions = 0;
    std::set<std::pair<std::size_t, bool>> ends{};  // of axes, below or above: there is nothing beyond
    std::set<std::size_t> extended{};               // axes
    std::map<std::pair<Place, std::uint64_t>, TunedTrial> trials{};
  };

  std::vector<Place> places(const State& state) const;
  Setting setting(const State& state, const Place& place) const;
  // How good a setting is.
  struct Rank {
    double mean = 0;
    std::size_t reached = 0;  // trials that reached their target
    double missed_by = 0;     // by all others together
  };
  std::optional<double> horizon(const State& state) const;  // none where no trial missed its target
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
