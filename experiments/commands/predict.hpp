// `syncopate predict`: what an experiment's methods will take, by formulas and by a short simulation of time alone;
// nothing is trained and no data are loaded.
#pragma once

#include <string>
#include <vector>

#include "experiments/commands/prediction_table.hpp"
#include "experiments/sections/experiment.hpp"

namespace syncopate {

// Method by method, sweep point by sweep point, each with the first seed. S_eff is against the method of this label, at
// the same point of the sweep, and if there is none against synchronous SGD. Throws Interrupted.
std::vector<PredictedMethod> predict(const Experiment& experiment, const std::string& against = "");

// Throws ConfigurationFault, with the nearest label, unless it is that of a method or empty.
void check_against(const Experiment& experiment, const std::string& against);

}  // namespace syncopate
