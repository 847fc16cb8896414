// [tune]: what each method is tried with before the experiment's runs are made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/sections/sweep.hpp"
#include "experiments/sections/tuned_axis.hpp"
#include "workers/settings/fault_list.hpp"
#include "workers/settings/settings.hpp"
#include "workers/settings/toml_tree.hpp"

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

}  // namespace syncopate
