// Weibull delays: P(X > x) = exp(-(x / scale)^shape).
#pragma once

#include <memory>

#include "workers/delays/delay_process.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// shape > 0. Below about 0.2 the quantile is too steep for polynomials and a draw takes longer.
std::shared_ptr<const DelayProcess> weibull_delay(double shape, double scale_s);

// Keys: 0.05 <= shape <= 1e6, scale >= 0.
std::shared_ptr<const DelayProcess> read_weibull_delay(Settings& settings, double unit_s);

}  // namespace syncopate
