#include "experiments/sections/results_changes.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "results/run/results_version.hpp"

namespace syncopate {
namespace {

// A change that altered the results of some runs. Where the exact set is hard to tell, name too many runs rather than too
// few: such a run is only repeated.
struct ResultsChange {
  int version;
  bool (*alters)(const TomlNode& resolved);
};

// Newest last. A version is raised once per release; several changes may share it.
const std::vector<ResultsChange>& results_changes() {
  static const std::vector<ResultsChange> changes;
  return changes;
}

}  // namespace

int results_version_of(const TomlNode& resolved) {
  int version = first_selective_results_version;
  for (const ResultsChange& change : results_changes())
    if (change.alters(resolved)) version = std::max(version, change.version);
  return version;
}

}  // namespace syncopate
