// A delay drawn by inverse distribution function: shift + scale x X, X = quantile(u).
#pragma once

#include <memory>

#include "workers/delays/drawn_delay.hpp"
#include "workers/delays/quantile_table.hpp"

namespace syncopate {

// Mean, variance and infimum of X, before shift and scale.
struct StandardMoments {
  double mean = 0;
  double variance = 0;
  double minimum = 0;
};

class QuantileDelay final : public DrawnDelay {
 public:
  // scale_s >= 0; with 0 the delay is shift_s, whatever the moments.
  QuantileDelay(std::shared_ptr<const QuantileTable> standard, const StandardMoments& moments, double shift_s,
                double scale_s);

  double mean_s() const override { return moments_s_.mean; }
  double variance_s2() const override { return moments_s_.variance; }
  double minimum_s() const override { return moments_s_.minimum; }

 private:
  void add_quantiles(std::span<const double> uniform, std::span<double> added_s) const override;

  std::shared_ptr<const QuantileTable> standard_;  // of the distribution before shift and scale
  double shift_s_;
  double scale_s_;
  StandardMoments moments_s_;  // with shift and scale
};

}  // namespace syncopate
