// `predict --to-target RUN`: time to a target from two parts, the time of a step, which is simulated, and the steps
// that are needed at its batch, by the noise scale of gradients along a finished run
// (results/statistics/steps_by_batch.hpp). What waiting for fewer gradients saves in time it costs in steps: the best
// setting is where the product is least.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "experiments/commands/prediction_table.hpp"
#include "experiments/sections/experiment.hpp"
#include "results/statistics/steps_by_batch.hpp"

namespace syncopate {

// A finished run that has reached its target, or several of one method, of which this is the mean.
struct TargetRuns {
  std::string method;
  std::optional<double> accuracy{}, loss{};  // the target
  int count = 0;
  StepsByBatch steps;
};

// Below the directory. Throws ConfigurationFault: nothing there, runs of several methods or targets, no noise scale, no
// target, or none that reached it.
TargetRuns read_target_runs(const std::string& directory);

// Throws ConfigurationFault where a run of the experiment has another target: what is told is about the runs'.
void check_target(const Experiment& experiment, const TargetRuns& target);

// Adds PredictedTarget to methods that were simulated, whose runs these are.
void predict_target(std::span<PredictedMethod> methods, const Experiment& experiment, const TargetRuns& target);

// A table of its own, the best setting first, and a line that names it and what of it is at the edge of a sweep.
// `width`: as for prediction_table.
std::string target_table(std::span<const PredictedMethod> methods, const TargetRuns& target, std::size_t width = 0);

}  // namespace syncopate
