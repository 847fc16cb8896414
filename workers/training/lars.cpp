#include "workers/training/lars.hpp"

#include <cmath>

#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/vector_clones.hpp"

namespace syncopate {
namespace {

// The step's scalars of one tensor, rounded to single precision once.
struct Scalars {
  float momentum = 0;
  float of_gradient = 0;    // r, times the rate where the momentum is of updates
  float of_parameters = 0;  // the same times the decay
  float rate = 1;           // of the momentum
};

// `ivdep`: see sgd.cpp.
SYNCOPATE_VECTOR_CLONES
void lars_pass(const OptimizerBlock& block, const Scalars s) {
  const float* const g = block.gradient;
  const float* const before = block.before;
  const float* const v_before = read_moment(block, 0);
  float* const after = block.after;
  float* const v_after = block.moments_after[0];
  SYNCOPATE_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < block.size; ++i) {
    const float d = s.of_gradient * g[i] + s.of_parameters * before[i];
    const float v = s.momentum * v_before[i] + d;
    v_after[i] = v;
    after[i] = before[i] - s.rate * v;
  }
}

class Lars final : public Optimizer {
 public:
  explicit Lars(const LarsOptions& options) : options_(options) {}

  int moments() const override { return 1; }
  std::vector<double> decays() const override { return {options_.momentum}; }
  const WeightDecay& weight_decay() const override { return options_.weight_decay; }

  int passes() const override { return 1; }
  TensorSums measure(int, const OptimizerBlock& block, const StepContext&) const override {
    return {sum_of_squares(block.gradient, block.size), sum_of_squares(block.before, block.size)};
  }

  void update(const OptimizerBlock& block, const StepContext& context) const override {
    double r = ratio(context);
    double rate = context.learning_rate;
    if (options_.momentum_of == MomentumOf::updates) {
      r *= rate;
      rate = 1;
    }
    lars_pass(block, {.momentum = static_cast<float>(options_.momentum),
                      .of_gradient = static_cast<float>(r),
                      .of_parameters = static_cast<float>(r * context.decay),
                      .rate = static_cast<float>(rate)});
  }

 private:
  double ratio(const StepContext& context) const {
    if (context.excluded && options_.trust == TrustScope::decayed) return 1;
    const auto& [g2, theta2, unused] = (*context.tensor)[0];
    if (g2 == 0 || theta2 == 0) return 1;
    const double theta = std::sqrt(theta2);
    return options_.trust_coefficient * theta / (std::sqrt(g2) + context.decay * theta + options_.epsilon);
  }

  LarsOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lars(const LarsOptions& options) {
  require_share(options.momentum, "momentum");
  require_positive(options.trust_coefficient, "trust_coefficient");
  require_at_least_zero(options.epsilon, "epsilon");
  require_at_least_zero(options.weight_decay.rate, "weight decay");
  return std::make_unique<Lars>(options);
}

}  // namespace syncopate
