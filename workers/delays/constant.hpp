// The same delay for every micro-batch.
#pragma once

#include <memory>

#include "workers/delays/compute_time.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

std::shared_ptr<const DelayProcess> constant_delay(double value_s);

// Keys: value >= 0.
std::shared_ptr<const DelayProcess> read_constant_delay(Settings& settings, double unit_s);

}  // namespace syncopate
