// Stochastic gradient descent with momentum, Nesterov's look-ahead and weight decay, in one pass.
#include <stdexcept>

#include "workers/training/optimizer.hpp"
#include "workers/training/vector_clones.hpp"

namespace syncopate {
namespace {

// The step's scalars, rounded to single precision once.
struct Scalars {
  float rate = 0;      // learning rate
  float momentum = 0;  // mu
  float l2 = 0;        // coupled decay: this times theta joins the gradient
  float shrink = 1;    // decoupled decay: theta is multiplied by this
};

enum class Momentum { none, from_zero, running };

// Decay that is off multiplies by 0 or 1, which changes no bit of a finite result and saves a loop per
// form. `ivdep`: before and after are the same memory or disjoint, so no iteration depends on another;
// without it the compiler takes equal pointers for an overlap and falls back to a scalar loop.
template <Momentum momentum, bool nesterov, MomentumOf of = MomentumOf::gradients>
[[gnu::always_inline]] inline void pass(const OptimizerBlock& block, const Scalars s) {
  const float* const g = block.gradient;
  const float* const before = block.before;
  const float* const v_before = block.moments_before[0];
  float* const after = block.after;
  float* const v_after = block.moments_after[0];
  SYNCOPATE_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < block.size; ++i) {
    float direction = g[i] + s.l2 * before[i];
    if constexpr (of == MomentumOf::updates) direction = s.rate * direction;
    if constexpr (momentum != Momentum::none) {
      float v = direction;
      if constexpr (momentum == Momentum::running) v = s.momentum * v_before[i] + direction;
      v_after[i] = v;
      direction = nesterov ? direction + s.momentum * v : v;
    }
    if constexpr (of == MomentumOf::gradients) direction = s.rate * direction;
    after[i] = before[i] * s.shrink - direction;
  }
}

SYNCOPATE_VECTOR_CLONES
void plain_pass(const OptimizerBlock& block, const Scalars s) { pass<Momentum::none, false>(block, s); }

SYNCOPATE_VECTOR_CLONES
void momentum_pass(const OptimizerBlock& block, const Scalars s) {
  if (block.moments_before[0] == nullptr) return pass<Momentum::from_zero, false>(block, s);
  pass<Momentum::running, false>(block, s);
}

SYNCOPATE_VECTOR_CLONES
void nesterov_pass(const OptimizerBlock& block, const Scalars s) {
  if (block.moments_before[0] == nullptr) return pass<Momentum::from_zero, true>(block, s);
  pass<Momentum::running, true>(block, s);
}

SYNCOPATE_VECTOR_CLONES
void pass_of_updates(const OptimizerBlock& block, const Scalars s, bool nesterov) {
  if (block.moments_before[0] == nullptr) {
    if (nesterov) return pass<Momentum::from_zero, true, MomentumOf::updates>(block, s);
    return pass<Momentum::from_zero, false, MomentumOf::updates>(block, s);
  }
  if (nesterov) return pass<Momentum::running, true, MomentumOf::updates>(block, s);
  pass<Momentum::running, false, MomentumOf::updates>(block, s);
}

class Sgd final : public Optimizer {
 public:
  explicit Sgd(const SgdOptions& options) : options_(options) {}

  int moments() const override { return options_.momentum == 0 ? 0 : 1; }
  std::vector<double> decays() const override {
    return options_.momentum == 0 ? std::vector<double>() : std::vector{options_.momentum};
  }
  const WeightDecay& weight_decay() const override { return options_.weight_decay; }

  void update(const OptimizerBlock& block, const StepContext& context) const override {
    Scalars scalars{.rate = static_cast<float>(context.learning_rate),
                    .momentum = static_cast<float>(options_.momentum)};
    if (options_.weight_decay.form == DecayForm::coupled) {
      scalars.l2 = static_cast<float>(context.decay);
    } else {
      scalars.shrink = static_cast<float>(1 - context.learning_rate * context.decay);
    }
    if (moments() == 0) {
      plain_pass(block, scalars);
    } else if (options_.momentum_of == MomentumOf::updates) {
      pass_of_updates(block, scalars, options_.nesterov);
    } else if (options_.nesterov) {
      nesterov_pass(block, scalars);
    } else {
      momentum_pass(block, scalars);
    }
  }

 private:
  SgdOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options) {
  require_share(options.momentum, "momentum");
  if (options.nesterov && options.momentum == 0) throw std::invalid_argument("nesterov needs a momentum above 0");
  require_at_least_zero(options.weight_decay.rate, "weight decay");
  return std::make_unique<Sgd>(options);
}

}  // namespace syncopate
