// Normal delays. They may be negative; ComputeTime keeps the whole micro-batch above 0.
#pragma once

#include <memory>

#include "workers/delays/compute_time.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

std::shared_ptr<const DelayProcess> normal_delay(double mean_s, double standard_deviation_s);

// Keys: mean (0 if absent), standard_deviation >= 0.
std::shared_ptr<const DelayProcess> read_normal_delay(Settings& settings, double unit_s);

}  // namespace syncopate
