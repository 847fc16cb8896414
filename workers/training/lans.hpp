// LANS: LAMB with each tensor's gradient normalised first, and a step that looks ahead as Nesterov's.
// Source:  Zheng et al. 2020, "Accelerated Large Batch Optimization of BERT Pretraining in 54 minutes"; the form that
//          DropCompute's 1.5B model uses.
//   h = g / (|g| + epsilon);  m = b1 m + (1 - b1) h;  s = b2 s + (1 - b2) h^2;  d = sqrt(s / (1 - b2^t)) + epsilon
//   r = m / (1 - b1^t) / d + wd theta;  c = h / d + wd theta
//   theta -= lr (b1 |theta| / |r| r + (1 - b1) |theta| / |c| c),  a ratio being 1 where a norm is 0
// Shapes:  gradient, parameters, m, s: (P,) flat float32; norms are those of tensors.
// Cost:    three passes over the vectors.
// Differs: the ratios scale all tensors, also those that do not decay; trust = decayed leaves these at 1. Clipping of
//          the global norm before is an option (off), and acts through epsilon alone.
// Checks:  golden vector; scaled gradients change nothing; a reference in double precision over 50 steps.
#pragma once

#include <memory>

#include "workers/training/optimizer.hpp"

namespace syncopate {

struct LansOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double max_norm = 0;  // of the gradient of all tensors; 0: not clipped
  TrustScope trust = TrustScope::all;
  WeightDecay weight_decay{.rate = 0.01, .form = DecayForm::decoupled};
};
// Throws std::invalid_argument unless 0 <= beta < 1, epsilon > 0, max_norm >= 0 and rate >= 0.
std::unique_ptr<Optimizer> make_lans(const LansOptions& options);

}  // namespace syncopate
