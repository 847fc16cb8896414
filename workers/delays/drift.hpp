// A delay that grows with the steps: min(per_step x step, maximum), as a machine that slowly heats up or fills.
#pragma once

#include <memory>

#include "workers/delays/delay_process.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// Its mean, variance and infimum are those of a long run: the maximum, 0, and 0 at the first step.
std::shared_ptr<const DelayProcess> drift_delay(double per_step_s, double maximum_s);

// Keys: per_step >= 0, maximum >= 0.
std::shared_ptr<const DelayProcess> read_drift_delay(Settings& settings, double unit_s);

}  // namespace syncopate
