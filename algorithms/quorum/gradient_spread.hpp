// How far gradients of one version lie apart, of which the last may come late.
// Shapes:  gradient: (P,) flat float32.
// Cost:    the norm of each gradient and of their sum, for which the server waits.
#pragma once

#include <optional>

#include "algorithms/quorum/expected_gain.hpp"
#include "workers/server.hpp"

namespace syncopate {

class GradientSpread {
 public:
  void add(const Server& server, Gradient& gradient) {
    squared_norms_ += squared(server.norm(gradient) / server.micro_batches());
    sum_ += gradient;
    ++gradients_;
  }

  int gradients() const { return gradients_; }

  // Nothing for one gradient, which has no spread.
  std::optional<GradientMoments> moments(const Server& server) {
    if (gradients_ < 2) return std::nullopt;
    const double norm_of_mean = server.norm(sum_) / (static_cast<double>(gradients_) * server.micro_batches());
    return gradient_moments(squared_norms_ / gradients_, squared(norm_of_mean), gradients_);
  }

 private:
  static double squared(double value) { return value * value; }

  Gradient sum_{};
  double squared_norms_ = 0;
  int gradients_ = 0;
};

}  // namespace syncopate
