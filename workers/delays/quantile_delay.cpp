#include "workers/delays/quantile_delay.hpp"

#include <utility>

namespace syncopate {

QuantileDelay::QuantileDelay(std::shared_ptr<const QuantileTable> standard, const StandardMoments& moments,
                             double shift_s, double scale_s)
    : standard_(std::move(standard)), shift_s_(shift_s), scale_s_(scale_s), moments_s_{shift_s, 0, shift_s} {
  if (scale_s == 0) return;
  moments_s_ = {shift_s + scale_s * moments.mean, scale_s * scale_s * moments.variance,
                shift_s + scale_s * moments.minimum};
}

void QuantileDelay::add_quantiles(std::span<const double> uniform, std::span<double> added_s) const {
  standard_->reader().add(uniform, {.shift = shift_s_, .scale = scale_s_}, added_s);
}

}  // namespace syncopate
