// The simulation's errors over the seeds of a row. Where a moment decides what a method does next, two right runs
// differ by more than the simulation does, and only their mean tells whether it is at fault.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "results/statistics/paired_difference.hpp"
#include "results/tables/comparison.hpp"

namespace syncopate {

struct MeanError {
  std::string label;             // the method, and its point of a sweep
  PairedDifference step_time{};  // of relative errors
  PairedDifference drop_rate{};  // of differences

  Verdict verdict(const Tolerances& tolerances) const;  // by the means
};

// Of rows that two seeds or more have, and all could be compared; in order of their first run.
std::vector<MeanError> mean_errors(std::span<const ComparedRun> runs);

// A row each, with 95 % intervals; empty without rows.
std::string mean_errors_text(std::span<const MeanError> errors, const Tolerances& tolerances);
std::string mean_errors_markdown(std::span<const MeanError> errors, const Tolerances& tolerances);

}  // namespace syncopate
