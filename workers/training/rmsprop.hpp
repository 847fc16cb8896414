// RMSProp: each gradient divided by the root of a running mean of its squares, with momentum.
// Source:  the kernel of TensorFlow (ApplyRMSProp), as Chen et al. 2016 use it: decay 0.9, momentum 0.9, epsilon 1.0;
//          torch.optim.RMSprop. Plain momentum, never Nesterov's; not centred.
//   tensorflow (default):  ms = rho ms + (1 - rho) g^2;  v = mu v + lr g / sqrt(ms + epsilon);    theta -= v
//   pytorch:               ms = rho ms + (1 - rho) g^2;  v = mu v + g / (sqrt(ms) + epsilon);     theta -= lr v
// Shapes:  gradient, parameters, ms, v: (P,) flat float32. The moments are v, then ms; without momentum ms alone.
// Differs: ms starts at 1 in TensorFlow 1, at 0 in Keras 2 and PyTorch. What is kept starts at 0 in every form, and
//          ms is that plus start rho^t, the same by the recursion: a null moment is zeros, as everywhere. Where a
//          state policy resets it, alone or with v, ms is `start` again.
// Checks:  golden vectors of all forms; torch::optim::RMSprop; epsilon far above g^2 is momentum SGD.
#pragma once

#include <memory>

#include "workers/training/optimizer.hpp"

namespace syncopate {

enum class RmsPropForm { tensorflow, pytorch };

struct RmsPropOptions {
  RmsPropForm form = RmsPropForm::tensorflow;
  double rho = 0.9;  // share of the mean square that a step keeps
  double momentum = 0.9;
  double epsilon = 1.0;
  double mean_square_start = 1;  // ms before the first step
  WeightDecay weight_decay{};    // coupled
};
// Throws std::invalid_argument unless 0 <= rho, momentum < 1, epsilon > 0, start >= 0 and rate >= 0.
std::unique_ptr<Optimizer> make_rmsprop(const RmsPropOptions& options);

}  // namespace syncopate
