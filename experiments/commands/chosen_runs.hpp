// --only: some of an experiment's runs.
#pragma once

#include <string>
#include <vector>

#include "experiments/sections/experiment.hpp"

namespace syncopate {

// Leaves the runs that are named, all if none is: by labels of methods, labels of variants, or how a hash begins. Of
// several kinds of names a run must have one of each: --only DropCompute --only "slow server" --only "no delay" leaves
// DropCompute's runs of two variants. Throws ConfigurationFault for a name that no run has.
void choose_runs(Experiment& experiment, const std::vector<std::string>& names);

}  // namespace syncopate
