// The course of tuning: which trials are to be made next, by what those that were made have shown. It runs nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "experiments/sections/tuning_plan.hpp"
#include "results/directory/tuning_json.hpp"
#include "results/rows/summary.hpp"

namespace syncopate {

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
  // their target, means are restricted to when all trials of the group are known (results/statistics/restricted_time);
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
