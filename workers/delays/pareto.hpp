// Pareto delays: P(X > x) = (minimum / x)^shape, the heaviest tail of all.
#pragma once

#include <memory>

#include "workers/delays/delay_process.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// shape > 0; the mean is infinite up to shape 1, the variance up to shape 2.
std::shared_ptr<const DelayProcess> pareto_delay(double shape, double minimum_s);

// Keys: 0.1 <= shape <= 1e6, minimum >= 0.
std::shared_ptr<const DelayProcess> read_pareto_delay(Settings& settings, double unit_s);

}  // namespace syncopate
