// AdamW (Loshchilov and Hutter 2019), and Adam with its decay in the gradient where that is asked for,
// in one pass.
#include <cmath>

#include "workers/training/optimizer.hpp"
#include "workers/training/vector_clones.hpp"

namespace syncopate {
namespace {

// The step's scalars, computed in double and rounded to single precision once. With
// c_i = 1 - beta_i^step, the step  lr (m / c_1) / (sqrt(s / c_2) + epsilon)  equals
// rate m / (sqrt(s) + epsilon')  where  rate = lr sqrt(c_2) / c_1  and  epsilon' = epsilon sqrt(c_2):
// one square root and one division per parameter.
struct Scalars {
  float rate = 0;
  float epsilon = 0;
  float beta1 = 0;
  float beta2 = 0;
  float rest1 = 0;   // 1 - beta1, rounded from double
  float rest2 = 0;   // 1 - beta2
  float l2 = 0;      // coupled decay: this times theta joins the gradient
  float shrink = 1;  // decoupled decay: theta is multiplied by this
};

// `ivdep`: see sgd.cpp. A moment that starts from zero has no vector to read.
template <bool first_from_zero, bool second_from_zero, bool keeps_second = false>
[[gnu::always_inline]] inline void pass(const OptimizerBlock& block, const Scalars s) {
  const float* const g = block.gradient;
  const float* const before = block.before;
  const float* const m_before = block.moments_before[0];
  const float* const s_before = block.moments_before[1];
  float* const after = block.after;
  float* const m_after = block.moments_after[0];
  float* const s_after = block.moments_after[1];
  SYNCOPATE_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < block.size; ++i) {
    const float direction = g[i] + s.l2 * before[i];
    float first = s.rest1 * direction;
    float second = keeps_second ? 0.0f : s.rest2 * direction * direction;
    if constexpr (!first_from_zero) first = s.beta1 * m_before[i] + first;
    if constexpr (!second_from_zero) second = keeps_second ? s_before[i] : s.beta2 * s_before[i] + second;
    if constexpr (keeps_second) first = second == 0 ? 0.0f : first;
    m_after[i] = first;
    s_after[i] = second;
    after[i] = before[i] * s.shrink - s.rate * (first / (std::sqrt(second) + s.epsilon));
  }
}

SYNCOPATE_VECTOR_CLONES
void adamw_pass(const OptimizerBlock& block, const Scalars s) {
  if (block.moments_before[0] != nullptr) {
    if (block.moments_before[1] != nullptr) return pass<false, false>(block, s);
    return pass<false, true>(block, s);
  }
  if (block.moments_before[1] != nullptr) return pass<true, false>(block, s);
  pass<true, true>(block, s);
}

// A second moment that has not been written yet is zero, and stays so. Where it is zero there is no scale for a step:
// the first moment becomes zero too.
SYNCOPATE_VECTOR_CLONES
void frozen_pass(const OptimizerBlock& block, const Scalars s) {
  if (block.moments_before[0] != nullptr) {
    if (block.moments_before[1] != nullptr) return pass<false, false, true>(block, s);
    return pass<false, true, true>(block, s);
  }
  if (block.moments_before[1] != nullptr) return pass<true, false, true>(block, s);
  pass<true, true, true>(block, s);
}

class AdamW final : public Optimizer {
 public:
  explicit AdamW(const AdamWOptions& options) : options_(options) {}

  int moments() const override { return 2; }
  std::vector<double> decays() const override { return {options_.beta1, options_.beta2}; }
  const WeightDecay& weight_decay() const override { return options_.weight_decay; }

  std::optional<double> beta1_of_frozen() const override {
    const bool decays_in_gradient = options_.weight_decay.form == DecayForm::coupled && options_.weight_decay.rate > 0;
    return options_.corrects_bias || decays_in_gradient ? std::nullopt : std::optional(options_.beta1);
  }

  void update(const OptimizerBlock& block, const StepContext& context) const override {
    const double correction1 = options_.corrects_bias ? 1 - left_of_start(options_.beta1, context.ages[0]) : 1;
    const double root2 = options_.corrects_bias ? std::sqrt(1 - left_of_start(options_.beta2, context.ages[1])) : 1;
    Scalars scalars{.rate = static_cast<float>(context.learning_rate * root2 / correction1),
                    .epsilon = static_cast<float>(options_.epsilon * root2),
                    .beta1 = static_cast<float>(options_.beta1),
                    .beta2 = static_cast<float>(options_.beta2),
                    .rest1 = static_cast<float>(1 - options_.beta1),
                    .rest2 = static_cast<float>(1 - options_.beta2)};
    if (options_.weight_decay.form == DecayForm::coupled) {
      scalars.l2 = static_cast<float>(context.decay);
    } else {
      scalars.shrink = static_cast<float>(1 - context.learning_rate * context.decay);
    }
    context.keeps_second ? frozen_pass(block, scalars) : adamw_pass(block, scalars);
  }

 private:
  AdamWOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& options) {
  require_share(options.beta1, "beta1");
  require_share(options.beta2, "beta2");
  require_positive(options.epsilon, "epsilon");
  require_at_least_zero(options.weight_decay.rate, "weight decay");
  return std::make_unique<AdamW>(options);
}

}  // namespace syncopate
