// [tune]: what each method is tried with before the experiment's runs are made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/sections/experiment.hpp"
#include "experiments/sections/variation.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {

struct TuneSection {
  SourcePlace place{};
  std::vector<std::uint64_t> seeds;
  std::string measure;                       // empty: that of the validation split
  int extensions = 0;                        // how often a grid may grow, at most
  std::map<std::size_t, std::size_t> fixed;  // axes of the sweep, and the entry at which methods are tuned
  std::vector<std::vector<TunedAxis>> axes;  // of each method
  std::vector<std::string> methods;          // their names, for faults

  std::uint64_t settings(std::size_t method) const;  // of its grid as it is written
};

// Keys of [training] and of methods (methods.LABEL.key), written as in [sweep]. A key of [training] is tuned for all
// methods, each by itself: it becomes their own [methods.training], in the place of what they have there. Where
// methods.LABEL.training has it too, that stands in its place. Keys that the command line sets or sweeps are not tuned.
// Nothing where nothing is tuned, or after a fault: another key, a method that is not there, a key that is also swept,
// no seeds or one of the experiment's, methods with different numbers of settings.
std::optional<TuneSection> read_tune(const TomlNode& root, const std::vector<SweepAxis>& swept, FaultList& faults);

// For the lists of keys.
void describe_tune(Settings& root);

// From [tune] to the trials of all methods.
// Of the grids as they are written, at every point of what varies but for what is fixed.
std::uint64_t number_of_trials(const TuneSection& tune, const std::vector<SweepAxis>& axes);

// `points`: of these runs, the first that makes each. Null after faults, which are added: settings that cannot be read,
// or make one run; a measure that there is not, or that is of the test set; none where no model is trained; one of the
// validation split where nothing is held out.
std::shared_ptr<const TuningPlan> plan_tuning(const std::shared_ptr<const Expansion>& all, const TuneSection& tune,
                                              std::span<const Run> runs, std::span<const std::size_t> points,
                                              FaultList& faults);

}  // namespace syncopate
