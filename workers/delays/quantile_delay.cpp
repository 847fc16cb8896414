#include "workers/delays/quantile_delay.hpp"

#include <utility>

#include "workers/delays/draw.hpp"

namespace syncopate {

QuantileDelay::QuantileDelay(std::shared_ptr<const QuantileTable> standard, double shift_s, double scale_s,
                             double mean_s)
    : standard_(std::move(standard)), shift_s_(shift_s), scale_s_(scale_s), mean_s_(mean_s) {}

void QuantileDelay::add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const {
  add_draws(stream, first, added_s, [quantile = standard_->reader(), shift_s = shift_s_, scale_s = scale_s_](double u) {
    return shift_s + scale_s * quantile(u);
  });
}

}  // namespace syncopate
