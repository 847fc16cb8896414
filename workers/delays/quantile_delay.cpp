#include "workers/delays/quantile_delay.hpp"

#include <utility>

#include "workers/delays/draw.hpp"

namespace syncopate {

QuantileDelay::QuantileDelay(std::shared_ptr<const QuantileTable> standard, const StandardMoments& moments,
                             double shift_s, double scale_s)
    : standard_(std::move(standard)), shift_s_(shift_s), scale_s_(scale_s), moments_s_{shift_s, 0, shift_s} {
  if (scale_s == 0) return;
  moments_s_ = {shift_s + scale_s * moments.mean, scale_s * scale_s * moments.variance,
                shift_s + scale_s * moments.minimum};
}

void QuantileDelay::add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const {
  add_batches(stream, first, added_s,
              [quantile = standard_->reader(), this](std::span<const double> uniform, std::span<double> now) {
                quantile.add(uniform, {.shift = shift_s_, .scale = scale_s_}, now);
              });
}

}  // namespace syncopate
