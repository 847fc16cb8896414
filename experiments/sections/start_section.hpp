// training.start: the parameters of a finished run, from which a training starts.
#pragma once

#include <memory>

#include "workers/models/objective_plan.hpp"
#include "workers/settings/settings.hpp"
#include "workers/training/starting_point.hpp"

namespace syncopate {

// Null where the key is not written, or after a fault.
std::shared_ptr<const StartingPoint> read_start(Settings& training, const ObjectivePlan& objective, bool time_only);

}  // namespace syncopate
