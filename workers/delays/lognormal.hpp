// Log-normal delays: scale x exp(mu + sigma Z), Z standard normal.
#pragma once

#include <memory>

#include "workers/delays/delay_process.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// sigma > 0. Its median is scale_s exp(mu).
std::shared_ptr<const DelayProcess> lognormal_delay(double mu, double sigma, double scale_s);

// Keys: mu and sigma of the logarithm; scale >= 0, 1 if absent.
std::shared_ptr<const DelayProcess> read_lognormal_delay(Settings& settings, double unit_s);

}  // namespace syncopate
