#include "workers/training/lans.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/vector_clones.hpp"

namespace syncopate {
namespace {

// The step's scalars of one tensor, rounded to single precision once.
struct Scalars {
  float normalise = 1;  // h = normalise g
  float beta1 = 0;
  float beta2 = 0;
  float rest1 = 0;        // 1 - beta1, rounded from double
  float rest2 = 0;        // 1 - beta2
  float correction1 = 1;  // 1 / (1 - beta1^t)
  float correction2 = 1;  // 1 / (1 - beta2^t)
  float epsilon = 0;
  float decay = 0;
};

// The two directions at parameters theta.
struct Directions {
  float r;
  float c;
};
[[gnu::always_inline]] inline Directions directions(float h, float m, float s, float theta, const Scalars& k) {
  const float d = std::sqrt(k.correction2 * s) + k.epsilon;
  return {k.correction1 * m / d + k.decay * theta, h / d + k.decay * theta};
}

// `ivdep`: see sgd.cpp.
SYNCOPATE_VECTOR_CLONES
void moments_pass(const OptimizerBlock& block, const Scalars k, float* r, float* c) {
  const float* const g = block.gradient;
  const float* const theta = block.before;
  const float* const m_before = read_moment(block, 0);
  const float* const s_before = read_moment(block, 1);
  float* const m_after = block.moments_after[0];
  float* const s_after = block.moments_after[1];
  SYNCOPATE_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < block.size; ++i) {
    const float h = k.normalise * g[i];
    const float m = k.beta1 * m_before[i] + k.rest1 * h;
    const float s = k.beta2 * s_before[i] + k.rest2 * h * h;
    m_after[i] = m;
    s_after[i] = s;
    const Directions both = directions(h, m, s, theta[i], k);
    r[i] = both.r;
    c[i] = both.c;
  }
}

SYNCOPATE_VECTOR_CLONES
void step_pass(const OptimizerBlock& block, const Scalars k, const float rate_r, const float rate_c) {
  const float* const g = block.gradient;
  const float* const theta = block.before;
  const float* const m = block.moments_after[0];
  const float* const s = block.moments_after[1];
  float* const after = block.after;
  SYNCOPATE_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < block.size; ++i) {
    const Directions both = directions(k.normalise * g[i], m[i], s[i], theta[i], k);
    after[i] = theta[i] - (rate_r * both.r + rate_c * both.c);
  }
}

class Lans final : public Optimizer {
 public:
  explicit Lans(const LansOptions& options) : options_(options) {}

  int moments() const override { return 2; }
  std::vector<double> decays() const override { return {options_.beta1, options_.beta2}; }
  const WeightDecay& weight_decay() const override { return options_.weight_decay; }

  int passes() const override { return 2; }
  TensorSums measure(int pass, const OptimizerBlock& block, const StepContext& context) const override {
    if (pass == 0) return {sum_of_squares(block.gradient, block.size)};
    std::array<float, longest_block> r, c;
    moments_pass(block, scalars(context), r.data(), c.data());
    return {sum_of_squares(block.before, block.size), sum_of_squares(r.data(), block.size),
            sum_of_squares(c.data(), block.size)};
  }

  void update(const OptimizerBlock& block, const StepContext& context) const override {
    const double theta2 = (*context.tensor)[1][0], r2 = (*context.tensor)[1][1], c2 = (*context.tensor)[1][2];
    const bool scales = options_.trust == TrustScope::all || !context.excluded;
    const auto rate = [&](double share, double norm2) {
      const double ratio = scales && theta2 > 0 && norm2 > 0 ? std::sqrt(theta2 / norm2) : 1;
      return static_cast<float>(context.learning_rate * share * ratio);
    };
    step_pass(block, scalars(context), rate(options_.beta1, r2), rate(1 - options_.beta1, c2));
  }

 private:
  Scalars scalars(const StepContext& context) const {
    return {.normalise = static_cast<float>(normalising_factor(context)),
            .beta1 = static_cast<float>(options_.beta1),
            .beta2 = static_cast<float>(options_.beta2),
            .rest1 = static_cast<float>(1 - options_.beta1),
            .rest2 = static_cast<float>(1 - options_.beta2),
            .correction1 = static_cast<float>(1 / (1 - left_of_start(options_.beta1, context.ages[0]))),
            .correction2 = static_cast<float>(1 / (1 - left_of_start(options_.beta2, context.ages[1]))),
            .epsilon = static_cast<float>(options_.epsilon),
            .decay = static_cast<float>(context.decay)};
  }

  double normalising_factor(const StepContext& context) const {
    double clip = 1;
    if (options_.max_norm > 0) clip = 1 / std::max(1.0, std::sqrt((*context.model)[0][0]) / options_.max_norm);
    const double norm = clip * std::sqrt((*context.tensor)[0][0]);
    return norm == 0 ? 1 : clip / (norm + options_.epsilon);
  }

  LansOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lans(const LansOptions& options) {
  require_share(options.beta1, "beta1");
  require_share(options.beta2, "beta2");
  require_positive(options.epsilon, "epsilon");
  require_at_least_zero(options.max_norm, "max_norm");
  require_at_least_zero(options.weight_decay.rate, "weight decay");
  return std::make_unique<Lans>(options);
}

}  // namespace syncopate
