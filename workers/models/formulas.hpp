// Models whose losses are formulas, for experiments with closed-form results: a noisy quadratic, a valley of minima, a
// diagonal linear network. These models need neither LibTorch nor a data set, and a micro-batch is one sample.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "workers/models/models.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// The common base of these models. Each data split counts as one sample, with the exact loss.
class Formula : public Objective {
 public:
  std::size_t weights() const override { return parameters(); }
  std::int64_t chunk_samples() const override { return 64; }
  std::int64_t samples_per_micro_batch() const override { return 1; }
  std::int64_t steps_per_epoch() const override { return 0; }
  std::int64_t evaluation_samples(Split) const override { return 1; }
  bool has_accuracy() const override { return false; }
  EvaluationSums evaluate(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                          std::int64_t end) const override;

 protected:
  virtual double loss(const float* parameters, Split split) const = 0;
};

// A noisy quadratic with a known optimum:
//   L(theta) = 1/2 sum_i a_i (theta_i - theta*_i)^2,  a_i log-spaced from 1 / condition to 1.
// The loss of a micro-batch is L(theta) + noise z . (theta - theta*) with standard normal z, so its gradient is the
// gradient of L plus `noise` z.
struct QuadraticOptions {
  std::int64_t dimension = 100;
  double condition = 100;  // largest curvature over the smallest
  double noise = 0.1;      // standard deviation of a micro-batch's gradient, per coordinate
  Step first_step{};       // number of steps before the run's first one; selects the noise
};

class Quadratic : public Formula {
 public:
  // The seed determines the optimum (standard normal) and the noise.
  Quadratic(const QuadraticOptions& options, std::uint64_t seed);

  std::size_t parameters() const override { return optimum_.size(); }
  std::vector<float> initial_parameters(std::uint64_t seed) const override;  // standard normal
  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override;
  std::vector<double> derivative(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                                 std::int64_t end, std::span<const double> direction) const override;

  const std::vector<double>& curvatures() const { return curvatures_; }
  const std::vector<double>& optimum() const { return optimum_; }

 private:
  double loss(const float* parameters, Split split) const override;

  QuadraticOptions options_;
  std::uint64_t seed_;
  std::vector<double> curvatures_;  // ascending
  std::vector<double> optimum_;
};

// A valley: L(u, v) = 1/2 sum_i u_i^2 v_i^2. Every point with v = 0 is a minimum, of sharpness u_i^2 across the valley.
// Noise in v makes u drift to flat minima, so the model shows how a method's noise acts along a manifold of minima. The
// loss of a micro-batch is L + noise z . v, where z has one standard normal number per pair. Closed form, with rate
// eta, K workers, period H, and sharpness q = u^2, to first order in eta:
//   dq / d(eta^2 t) = - (noise^2 / K) (1 + (K - 1) psi) / (1 - eta q / 2),
//   psi = 1 - (1 - rho^H) / (H (1 - rho)),  rho = (1 - eta q)^2.
// Source:  the setting of Gu et al. 2023, "Why (and When) does Local SGD Generalize Better than SGD?", in two numbers,
//          u and v.
struct ValleyOptions {
  std::int64_t pairs = 1;  // independent copies of (u, v)
  double start = 2;        // u at the start; v starts at 0
  double noise = 0.3162;   // standard deviation of a micro-batch's gradient in each v
  Step first_step{};       // as in QuadraticOptions
};

// Parameters: (2 pairs,), first all u, then all v.
class Valley : public Formula {
 public:
  Valley(const ValleyOptions& options, std::uint64_t seed) : options_(options), seed_(seed) {}

  std::size_t parameters() const override { return 2 * pairs(); }
  std::vector<float> initial_parameters(std::uint64_t seed) const override;  // the same for every seed
  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override;
  std::vector<double> derivative(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                                 std::int64_t end, std::span<const double> direction) const override;

 private:
  double loss(const float* parameters, Split split) const override;
  std::size_t pairs() const { return static_cast<std::size_t>(options_.pairs); }

  ValleyOptions options_;
  std::uint64_t seed_;
};

// A diagonal linear network with label noise: f(x) = <x, u^2 - v^2>, fitted to few inputs of a sparse linear truth.
// Many u and v fit these inputs exactly. Label noise makes the parameters drift to flat fits, which are sparser and so
// err less on new inputs.
//   inputs: standard normal; truth: `active` coordinates are +1 and -1 alternately, the others are 0
//   micro-batch: one input, drawn with replacement; its target is the truth's output plus or minus label_noise
//   loss: half the squared error; train: its mean over the inputs, without label noise
//   test: the excess risk, which is the mean squared error on new inputs, |u^2 - v^2 - truth|^2
// Source:  Woodworth et al. 2020, "Kernel and rich regimes in overparametrized models" (the network); HaoChen et al.
//          2021, "Shape matters: understanding the implicit bias of the noise covariance" (label noise).
struct DiagonalLinearOptions {
  std::int64_t dimension = 24;
  std::int64_t inputs = 14;
  std::int64_t active = 2;
  double label_noise = 0.5;
  double start = 0.6;                           // the value of every u and v at the start
  std::optional<std::uint64_t> problem_seed{};  // determines the inputs; nullopt: the run's seed determines them
  Step first_step{};                            // as in QuadraticOptions
};

// Parameters: (2 dimension,), first u, then v.
class DiagonalLinear : public Formula {
 public:
  DiagonalLinear(const DiagonalLinearOptions& options, std::uint64_t seed);

  std::size_t parameters() const override { return 2 * dimension(); }
  std::vector<float> initial_parameters(std::uint64_t seed) const override;  // the same for every seed
  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override;
  std::vector<double> derivative(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                                 std::int64_t end, std::span<const double> direction) const override;

  std::span<const double> input(std::size_t index) const {
    return std::span(inputs_).subspan(index * dimension(), dimension());
  }
  const std::vector<double>& truth() const { return truth_; }

 private:
  double loss(const float* parameters, Split split) const override;
  std::size_t dimension() const { return static_cast<std::size_t>(options_.dimension); }
  std::vector<double> difference(const float* parameters) const;  // u^2 - v^2 - truth
  // The product of each input with `difference`, which is the error of f(x) if difference() computed it.
  std::vector<double> errors(const std::vector<double>& difference) const;

  DiagonalLinearOptions options_;
  std::uint64_t seed_;
  std::vector<double> inputs_;  // (inputs, dimension)
  std::vector<double> truth_;   // (dimension,)
};

Model read_quadratic(Settings& table);
Model read_valley(Settings& table);
Model read_diagonal_linear(Settings& table);

}  // namespace syncopate
