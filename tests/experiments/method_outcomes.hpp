// Runs of one experiment with one method or another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/experiments/experiment_file.hpp"
#include "tests/experiments/run_results.hpp"

namespace syncopate {

class MethodOutcomes : public ExperimentFile {
 protected:
  // `method`: what stands in its table, "algorithm='sync-sgd'".
  Outcome outcome_with(const std::string& method, Overrides overrides = {}) const {
    overrides.push_back("methods=[{" + method + "}]");
    return outcome_of(load(overrides).runs.front());
  }
};

// Of its evaluations.
inline std::vector<std::int64_t> steps_of(const Outcome& outcome) {
  std::vector<std::int64_t> steps;
  for (const MetricsRow& row : outcome.recording.metrics) steps.push_back(row.step.value());
  return steps;
}

}  // namespace syncopate
