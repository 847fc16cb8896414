#include "workers/training/lamb.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/vector_clones.hpp"

namespace syncopate {
namespace {

// The step's scalars, rounded to single precision once.
struct Scalars {
  float clip = 1;  // what g is multiplied by
  float l2 = 0;    // coupled decay
  float beta1 = 0;
  float beta2 = 0;
  float rest1 = 0;        // 1 - beta1, rounded from double
  float rest2 = 0;        // 1 - beta2
  float correction1 = 1;  // 1 / (1 - beta1^t)
  float correction2 = 1;  // 1 / (1 - beta2^t)
  float epsilon = 0;
  float decay = 0;  // decoupled
};

// Writes the direction u over the gradient. `ivdep`: see sgd.cpp.
SYNCOPATE_VECTOR_CLONES
void direction_pass(const OptimizerBlock& block, const Scalars c) {
  const float* const before = block.before;
  const float* const m_before = read_moment(block, 0);
  const float* const s_before = read_moment(block, 1);
  float* const m_after = block.moments_after[0];
  float* const s_after = block.moments_after[1];
  float* const kept = block.kept;
  SYNCOPATE_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < block.size; ++i) {
    const float g = c.clip * kept[i] + c.l2 * before[i];
    const float m = c.beta1 * m_before[i] + c.rest1 * g;
    const float s = c.beta2 * s_before[i] + c.rest2 * g * g;
    m_after[i] = m;
    s_after[i] = s;
    kept[i] = c.correction1 * m / (std::sqrt(c.correction2 * s) + c.epsilon) + c.decay * before[i];
  }
}

SYNCOPATE_VECTOR_CLONES
void step_pass(const OptimizerBlock& block, const float rate) {
  const float* const u = block.gradient;
  const float* const before = block.before;
  float* const after = block.after;
  SYNCOPATE_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < block.size; ++i) after[i] = before[i] - rate * u[i];
}

class Lamb final : public Optimizer {
 public:
  explicit Lamb(const LambOptions& options) : options_(options) {}

  int moments() const override { return 2; }
  std::vector<double> decays() const override { return {options_.beta1, options_.beta2}; }
  const WeightDecay& weight_decay() const override { return options_.weight_decay; }

  int passes() const override { return clips() ? 2 : 1; }
  TensorSums measure(int pass, const OptimizerBlock& block, const StepContext& context) const override {
    if (clips() && pass == 0) return {sum_of_squares(block.gradient, block.size)};
    direction_pass(block, scalars(context));
    return {sum_of_squares(block.before, block.size), sum_of_squares(block.kept, block.size)};
  }

  void update(const OptimizerBlock& block, const StepContext& context) const override {
    step_pass(block, static_cast<float>(context.learning_rate * ratio(context)));
  }

 private:
  bool clips() const { return options_.max_norm > 0; }

  Scalars scalars(const StepContext& context) const {
    Scalars scalars{.beta1 = static_cast<float>(options_.beta1),
                    .beta2 = static_cast<float>(options_.beta2),
                    .rest1 = static_cast<float>(options_.averages_gradients ? 1 - options_.beta1 : 1),
                    .rest2 = static_cast<float>(1 - options_.beta2),
                    .correction1 = static_cast<float>(1 / (1 - left_of_start(options_.beta1, context.ages[0]))),
                    .correction2 = static_cast<float>(1 / (1 - left_of_start(options_.beta2, context.ages[1]))),
                    .epsilon = static_cast<float>(options_.epsilon)};
    if (clips()) {
      const double norm = std::sqrt((*context.model)[0][0]);
      scalars.clip = static_cast<float>(1 / std::max(1.0, norm / options_.max_norm));
    }
    const bool is_coupled = options_.weight_decay.form == DecayForm::coupled;
    (is_coupled ? scalars.l2 : scalars.decay) = static_cast<float>(context.decay);
    return scalars;
  }

  double ratio(const StepContext& context) const {
    if (context.decay == 0 && options_.trust == TrustScope::decayed) return 1;
    const auto& [theta2, u2, unused] = (*context.tensor)[clips() ? 1 : 0];
    if (theta2 == 0 || u2 == 0) return 1;
    return std::clamp(std::sqrt(theta2 / u2), options_.ratio_min, options_.ratio_max);
  }

  LambOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lamb(const LambOptions& options) {
  require_share(options.beta1, "beta1");
  require_share(options.beta2, "beta2");
  require_positive(options.epsilon, "epsilon");
  require_at_least_zero(options.max_norm, "max_norm");
  require_at_least_zero(options.ratio_min, "ratio_min");
  if (!(options.ratio_max >= options.ratio_min)) throw std::invalid_argument("ratio_max must be at least ratio_min");
  require_at_least_zero(options.weight_decay.rate, "weight decay");
  return std::make_unique<Lamb>(options);
}

}  // namespace syncopate
