// The mean-squared error: of a sample the mean of (output - target)^2 over its targets, as torch.nn.MSELoss has it of
// all samples.
// Shapes:  outputs and targets (n, targets); the sum over the samples.
#pragma once

#include <ATen/ATen.h>

#include "workers/models/cross_entropy.hpp"

namespace syncopate {

LossSums squared_error(const at::Tensor& outputs, const at::Tensor& targets);

}  // namespace syncopate
