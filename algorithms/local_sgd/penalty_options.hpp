// What EDiT's penalty on pseudo-gradients goes by (pseudo_gradient_penalty.hpp).
#pragma once

#include <limits>

namespace syncopate {

struct PenaltyOptions {
  static constexpr double infinity = std::numeric_limits<double>::infinity();
  double outlier_factor = 3;        // deviations above the mean; inf: nobody is an outlier
  int outlier_warmup = 120;         // W: norms that come first, and z-scores that the threshold goes by
  double outlier_smoothing = 0.02;  // a
  double temperature = 1;           // T, in units of a norm; inf: all weigh alike
  double step_share = 0;            // r: how much of a weight goes by steps instead
  double clip_norm = infinity;      // phi

  bool finds_outliers() const { return outlier_factor < infinity; }
};

}  // namespace syncopate
