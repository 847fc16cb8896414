// What is tried before an experiment's runs are made, and how these follow from what was found best.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "experiments/sections/tuned_axis.hpp"
#include "results/run/run.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {

using Setting = std::vector<TomlNode>;  // a value of each axis

// A method at a point of what varies: it has a best setting of its own.
struct TuningGroup {
  std::size_t method_index = 0;
  std::string method;
  std::vector<std::pair<std::string, std::string>> point{};  // what names it beside the method
  std::vector<TunedAxis> axes{};
};

struct TuningPlan {
  std::vector<std::uint64_t> seeds;
  std::string measure;
  int extensions = 0;
  std::vector<std::pair<std::string, std::string>> where{};  // at which values of what varies methods are tuned
  std::vector<TuningGroup> groups{};
  std::map<std::string, std::size_t> group_of_run{};  // of the experiment's runs, by their hashes

  // A trial. Throws ConfigurationFault where the file cannot be read with this setting.
  std::function<Run(std::size_t group, const Setting& setting, std::uint64_t seed)> trial{};
  // The experiment's runs with these settings of the groups. Runs of other groups are left out.
  std::function<std::vector<Run>(const std::map<std::size_t, Setting>& settings)> runs{};
};

}  // namespace syncopate
