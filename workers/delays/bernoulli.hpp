// Delays that are there or not: value with a probability, else 0.
#pragma once

#include <memory>

#include "workers/delays/delay_process.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// 0 <= probability <= 1.
std::shared_ptr<const DelayProcess> bernoulli_delay(double probability, double value_s);

// Keys: 0 <= probability <= 1, value >= 0.
std::shared_ptr<const DelayProcess> read_bernoulli_delay(Settings& settings, double unit_s);

}  // namespace syncopate
