// Which norms of a worker's pseudo-gradients are outliers: those far above the mean of the worker's own so far.
// Source:  as in pseudo_gradient_penalty.hpp.
// Shapes:  numbers in double precision.
// Cost:    W numbers kept.
// Differs: as there.
// Checks:  mean, variance and first outlier of constant norms in closed form; a second implementation that keeps all
//          norms.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/local_sgd/penalty_options.hpp"

namespace syncopate {

// What the norms of one worker's pseudo-gradients of one module have been so far.
class NormStatistics {
 public:
  // Whether it is too far above the mean: z > factor x max(1, deviation of the last W z-scores). Of none, before W.
  bool is_outlier(double norm, const PenaltyOptions& options) const;
  // mean += a (norm - mean);  variance = (1 - a) (variance + a (norm - old mean) (norm - new mean)).
  void take_in(double norm, const PenaltyOptions& options);

  double mean() const { return mean_; }
  double variance() const { return variance_; }

 private:
  double z_score(double norm, int warmup) const;
  double recent_deviation() const;

  std::int64_t taken_ = 0;
  double mean_ = 0;
  double variance_ = 0;
  std::vector<double> z_scores_;  // of the last W, each when it was taken in; a ring once there are W
};

// The least W after which a constant norm is no outlier, whatever the last z-scores: that of the W-th one is
// sqrt(q^(W - 1) / (1 - q^W)) with q = 1 - a, since mean and variance begin at 0, and falls from there on. After much
// fewer all workers are outliers for ever.
int shortest_warmup(const PenaltyOptions& options);

}  // namespace syncopate
