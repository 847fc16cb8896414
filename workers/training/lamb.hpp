// LAMB: Adam whose step is scaled, tensor by tensor, to the tensor's own norm.
// Source:  You et al. 2020, "Large Batch Optimization for Deep Learning"; NVIDIA's variant, which DeepSpeed and
//          DropCompute's BERT-Large share.
//   g /= max(1, |g| / max_norm), |g| over all tensors;  m = b1 m + (1 - b1) g;  s = b2 s + (1 - b2) g^2
//   u = m / (1 - b1^t) / (sqrt(s / (1 - b2^t)) + epsilon) + wd theta;  theta -= lr |theta| / |u| u
// Shapes:  gradient, parameters, m, s: (P,) flat float32; norms are those of tensors.
// Cost:    two passes over the vectors and one for the global norm.
// Differs: the ratio is 1 where a norm is 0 and where nothing decays (norms and biases; a rate of 0), as in NVIDIA's;
//          trust = all scales every tensor ("nvlamb"). A coupled decay (L2 mode) is added to g before the moments.
//          Without averaging of gradients (1 - b1) is 1. The ratio is not bounded, as in NVIDIA's; DropCompute's
//          experimental variant bounds it to 0.01 ... 10.
// Checks:  golden vectors; a reference in double precision over 50 steps of many tensors.
#pragma once

#include <limits>
#include <memory>

#include "workers/training/optimizer.hpp"

namespace syncopate {

struct LambOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  bool averages_gradients = true;
  double max_norm = 1;  // of the gradient of all tensors; 0: not clipped
  TrustScope trust = TrustScope::decayed;
  double ratio_min = 0;
  double ratio_max = std::numeric_limits<double>::infinity();
  WeightDecay weight_decay{.rate = 0.01, .form = DecayForm::decoupled};
};
// Throws std::invalid_argument unless 0 <= beta < 1, epsilon > 0, max_norm >= 0, 0 <= ratio_min <= ratio_max and
// rate >= 0.
std::unique_ptr<Optimizer> make_lamb(const LambOptions& options);

}  // namespace syncopate
