#include "workers/training/rmsprop.hpp"

#include <cmath>

#include "workers/training/vector_clones.hpp"

namespace syncopate {
namespace {

// The step's scalars, rounded to single precision once.
struct Scalars {
  float rate = 0;
  float momentum = 0;
  float rho = 0;
  float rest = 0;   // 1 - rho, rounded from double
  float start = 0;  // what is left of the mean square's start
  float epsilon = 0;
  float l2 = 0;
};

// `ivdep`: see sgd.cpp.
template <bool has_momentum, RmsPropForm form>
[[gnu::always_inline]] inline void pass(const OptimizerBlock& block, const Scalars s) {
  const float* const g = block.gradient;
  const float* const before = block.before;
  const float* const v_before = has_momentum ? read_moment(block, 0) : nullptr;
  const float* const ms_before = read_moment(block, has_momentum ? 1 : 0);
  float* const after = block.after;
  float* const v_after = block.moments_after[0];
  float* const ms_after = block.moments_after[has_momentum ? 1 : 0];
  SYNCOPATE_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < block.size; ++i) {
    const float gradient = g[i] + s.l2 * before[i];
    const float kept = s.rho * ms_before[i] + s.rest * gradient * gradient;
    ms_after[i] = kept;
    const float ms = kept + s.start;
    float update = 0;
    if constexpr (form == RmsPropForm::tensorflow) {
      update = s.rate * gradient / std::sqrt(ms + s.epsilon);
    } else {
      update = gradient / (std::sqrt(ms) + s.epsilon);
    }
    if constexpr (has_momentum) {
      update = s.momentum * v_before[i] + update;
      v_after[i] = update;
    }
    after[i] = before[i] - (form == RmsPropForm::tensorflow ? update : s.rate * update);
  }
}

SYNCOPATE_VECTOR_CLONES
void tensorflow_pass(const OptimizerBlock& block, const Scalars s, bool has_momentum) {
  if (has_momentum) return pass<true, RmsPropForm::tensorflow>(block, s);
  pass<false, RmsPropForm::tensorflow>(block, s);
}

SYNCOPATE_VECTOR_CLONES
void pytorch_pass(const OptimizerBlock& block, const Scalars s, bool has_momentum) {
  if (has_momentum) return pass<true, RmsPropForm::pytorch>(block, s);
  pass<false, RmsPropForm::pytorch>(block, s);
}

class RmsProp final : public Optimizer {
 public:
  explicit RmsProp(const RmsPropOptions& options) : options_(options) {}

  int moments() const override { return options_.momentum == 0 ? 1 : 2; }
  std::vector<double> decays() const override {
    return options_.momentum == 0 ? std::vector{options_.rho} : std::vector{options_.momentum, options_.rho};
  }
  const WeightDecay& weight_decay() const override { return options_.weight_decay; }

  void update(const OptimizerBlock& block, const StepContext& context) const override {
    const double left = left_of_start(options_.rho, context.ages[options_.momentum > 0 ? 1 : 0]);
    const Scalars scalars{.rate = static_cast<float>(context.learning_rate),
                          .momentum = static_cast<float>(options_.momentum),
                          .rho = static_cast<float>(options_.rho),
                          .rest = static_cast<float>(1 - options_.rho),
                          .start = static_cast<float>(options_.mean_square_start * left),
                          .epsilon = static_cast<float>(options_.epsilon),
                          .l2 = static_cast<float>(context.decay)};
    if (options_.form == RmsPropForm::tensorflow) {
      tensorflow_pass(block, scalars, options_.momentum > 0);
    } else {
      pytorch_pass(block, scalars, options_.momentum > 0);
    }
  }

 private:
  RmsPropOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_rmsprop(const RmsPropOptions& options) {
  require_share(options.rho, "rho");
  require_share(options.momentum, "momentum");
  require_positive(options.epsilon, "epsilon");
  require_at_least_zero(options.mean_square_start, "mean_square_start");
  require_at_least_zero(options.weight_decay.rate, "weight decay");
  return std::make_unique<RmsProp>(options);
}

}  // namespace syncopate
