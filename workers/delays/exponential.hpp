// Exponential delays, from zero or from a shift on.
#pragma once

#include <memory>

#include "workers/delays/delay_process.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

std::shared_ptr<const DelayProcess> exponential_delay(double mean_s);

// shift_s plus an exponential of mean mean_s: shift_s + mean_s on average.
std::shared_ptr<const DelayProcess> shifted_exponential_delay(double shift_s, double mean_s);

// Key: mean >= 0.
std::shared_ptr<const DelayProcess> read_exponential_delay(Settings& settings, double unit_s);

// Keys: shift >= 0; mean >= 0 of the exponential part.
std::shared_ptr<const DelayProcess> read_shifted_exponential_delay(Settings& settings, double unit_s);

}  // namespace syncopate
