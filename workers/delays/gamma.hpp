// Gamma delays: mean shape x scale, variance shape x scale^2.
#pragma once

#include <memory>

#include "workers/delays/compute_time.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// shape > 0. Below about 0.1 the quantile is too steep for polynomials and a draw takes microseconds.
std::shared_ptr<const DelayProcess> gamma_delay(double shape, double scale_s);

// Keys: 0.01 <= shape <= 1e6, scale >= 0.
std::shared_ptr<const DelayProcess> read_gamma_delay(Settings& settings, double unit_s);

}  // namespace syncopate
