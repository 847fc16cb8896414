#include "algorithms/local_sgd/norm_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace syncopate {

bool NormStatistics::is_outlier(double norm, const PenaltyOptions& options) const {
  if (!options.finds_outliers()) return false;
  if (!std::isfinite(norm)) return true;
  if (taken_ < options.outlier_warmup) return false;
  const double factor = options.outlier_factor * std::max(1.0, recent_deviation());
  return z_score(norm, options.outlier_warmup) > factor;
}

void NormStatistics::take_in(double norm, const PenaltyOptions& options) {
  const double a = options.outlier_smoothing, from_old = norm - mean_;
  mean_ += a * from_old;
  variance_ = (1 - a) * (variance_ + a * from_old * (norm - mean_));
  const auto at = static_cast<std::size_t>(taken_++ % options.outlier_warmup);
  if (at == z_scores_.size()) z_scores_.push_back(0);
  z_scores_[at] = z_score(norm, options.outlier_warmup);
}

double NormStatistics::z_score(double norm, int warmup) const {
  return taken_ < warmup || variance_ == 0 ? 0 : (norm - mean_) / std::sqrt(variance_);
}

double NormStatistics::recent_deviation() const {
  const auto count = static_cast<double>(z_scores_.size());
  if (count < 2) return 0;
  const double mean = std::accumulate(z_scores_.begin(), z_scores_.end(), 0.0) / count;
  double squares = 0;
  for (const double z : z_scores_) squares += (z - mean) * (z - mean);
  return std::sqrt(squares / (count - 1));
}

int shortest_warmup(const PenaltyOptions& options) {
  const double q = 1 - options.outlier_smoothing, square = options.outlier_factor * options.outlier_factor;
  // q^(W - 1) <= square (1 - q^W)
  const double warmup = std::log(square * q / (1 + square * q)) / std::log(q);
  return options.finds_outliers() ? std::max(1, static_cast<int>(std::ceil(warmup - 1e-9))) : 1;
}

}  // namespace syncopate
