// A noisy quadratic with a known optimum, for questions that have closed answers:
//   L(theta) = 1/2 sum_i a_i (theta_i - theta*_i)^2,  a_i log-spaced from 1 / condition to 1,
// and the loss of a micro-batch is L(theta) + noise z . (theta - theta*) with standard normal z, so
// that its gradient is the true one plus `noise` per coordinate. No LibTorch, no data.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "workers/models/models.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

struct QuadraticOptions {
  std::int64_t dimension = 100;
  double condition = 100;  // largest curvature over the smallest
  double noise = 0.1;      // standard deviation of a micro-batch's gradient, per coordinate
  Step first_step{};       // of the noise: so many steps lie before the run's first
};

class Quadratic : public Objective {
 public:
  // The seed fixes the optimum (standard normal) and the noise.
  Quadratic(const QuadraticOptions& options, std::uint64_t seed);

  std::size_t parameters() const override { return optimum_.size(); }
  std::size_t weights() const override { return optimum_.size(); }
  std::vector<float> initial_parameters(std::uint64_t seed) const override;  // standard normal

  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override;

  static constexpr std::int64_t chunk = 64;
  std::int64_t chunk_samples() const override { return chunk; }
  std::int64_t samples_per_micro_batch() const override { return 1; }
  std::int64_t steps_per_epoch() const override { return 0; }

  // The exact loss, as that of one sample in either split.
  std::int64_t evaluation_samples(Split) const override { return 1; }
  EvaluationSums evaluate(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                          std::int64_t end) const override;
  bool has_accuracy() const override { return false; }
  std::vector<double> derivative(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                                 std::int64_t end, std::span<const double> direction) const override;

  const std::vector<double>& curvatures() const { return curvatures_; }
  const std::vector<double>& optimum() const { return optimum_; }

 private:
  double loss(const float* parameters) const;

  QuadraticOptions options_;
  std::uint64_t seed_;
  std::vector<double> curvatures_;  // ascending
  std::vector<double> optimum_;
};

// The table [models.quadratic].
Model read_quadratic(Settings& table);

}  // namespace syncopate
