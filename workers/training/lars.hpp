// LARS: momentum SGD in which each tensor's step is in proportion to its norm.
// Source:  You et al. 2017, "Large Batch Training of Convolutional Networks"; MLPerf's TensorFlow optimizer.
//   r = eta |theta| / (|g| + wd |theta| + epsilon), 1 where a norm is 0;  d = r (g + wd theta)
//   updates (default, MLPerf's):  v = mu v + lr d;  theta -= v
//   gradients:                    v = mu v + d;     theta -= lr v
// Shapes:  gradient, parameters, v: (P,) flat float32; norms are those of tensors.
// Cost:    one pass over the vectors for the norms, and one for the step.
// Differs: a tensor that decay does not concern has neither decay nor ratio, as MLPerf's skip list (norms and biases);
//          trust = all gives it a ratio. MLPerf's epsilon of 0 is its backend's 1e-7. LARC's bound on r is not here.
// Checks:  golden vectors; a reference in double precision over 50 steps of many tensors.
#pragma once

#include <memory>

#include "workers/training/optimizer.hpp"

namespace syncopate {

struct LarsOptions {
  double momentum = 0.9;
  MomentumOf momentum_of = MomentumOf::updates;
  double trust_coefficient = 0.001;  // eta
  double epsilon = 1e-7;
  TrustScope trust = TrustScope::decayed;
  WeightDecay weight_decay{.rate = 5e-5};  // coupled
};
// Throws std::invalid_argument unless 0 <= momentum < 1, the coefficient > 0, epsilon >= 0 and rate >= 0.
std::unique_ptr<Optimizer> make_lars(const LarsOptions& options);

}  // namespace syncopate
