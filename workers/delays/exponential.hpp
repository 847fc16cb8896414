// Exponential delays. A shifted exponential is this and a constant, which compose by addition.
#pragma once

#include <memory>

#include "experiments/settings.hpp"
#include "workers/delays/compute_time.hpp"

namespace syncopate {

std::shared_ptr<const DelayProcess> exponential_delay(double mean_s);

// Keys: mean >= 0.
std::shared_ptr<const DelayProcess> read_exponential_delay(Settings& settings, double unit_s);

}  // namespace syncopate
