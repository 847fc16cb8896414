// An experiment file at every point of what varies, and the runs that this makes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "experiments/sections/document_changes.hpp"
#include "experiments/sections/experiment.hpp"
#include "experiments/sections/sweep.hpp"
#include "results/run/run.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {

struct Expansion {
  std::string file;
  LoadOptions options;
  std::vector<SweepAxis> axes;
  std::vector<SweepPoint> points;
  std::vector<TomlNode> documents;  // point by point
  std::size_t methods = 0;
  std::vector<std::uint64_t> seeds;
};

// What a method has otherwise at a point, as tuning found it best; nothing: its runs are not to be made.
using Tuned = std::function<std::optional<std::vector<Change>>(std::size_t point, std::size_t method)>;

struct ExpandedRuns {
  std::vector<Run> runs;
  std::vector<std::size_t> points;  // of each: the first that makes it
};

// Point by point, method by method, seed by seed. Runs that another point makes already, because what is swept concerns
// another method, or because the method has the key otherwise, are left out. Throws ConfigurationFault, also where
// other values make the same run: they mean the same.
ExpandedRuns runs_of(const Expansion& all, const Tuned& tuned = {});

// Without the keys in which the two differ: they do not concern the method.
void keep_what_is_equal(std::vector<PointName>& sweep, const std::vector<PointName>& other);

}  // namespace syncopate
