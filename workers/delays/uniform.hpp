// Delays uniform between two bounds.
#pragma once

#include <memory>

#include "workers/delays/compute_time.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// low_s <= high_s.
std::shared_ptr<const DelayProcess> uniform_delay(double low_s, double high_s);

// Keys: 0 <= low <= high; low is 0 if absent.
std::shared_ptr<const DelayProcess> read_uniform_delay(Settings& settings, double unit_s);

}  // namespace syncopate
