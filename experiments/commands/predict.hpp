// `syncopate predict`: what an experiment's methods will take, by formulas and by a short simulation of time alone;
// nothing is trained and no data are loaded.
#pragma once

#include <vector>

#include "experiments/commands/prediction_table.hpp"
#include "experiments/sections/experiment.hpp"

namespace syncopate {

// Method by method, sweep point by sweep point, each with the first seed. Throws Interrupted.
std::vector<PredictedMethod> predict(const Experiment& experiment);

}  // namespace syncopate
