// A network's gradients as LibTorch leaves them, one tensor per parameter in the network's order. For sources with
// LibTorch alone.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "workers/models/network.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// Of a loss times `share`; zeros where it does not depend on a parameter.
std::vector<at::Tensor> gradients_of(const at::Tensor& loss, const std::vector<at::Tensor>& parameters,
                                     double share = 1);

// In place, where nothing else has the memory; an empty sum becomes the summand.
void add_to(std::vector<at::Tensor>& sum, std::vector<at::Tensor> summand);

// By ascending offset; they keep the tensors alive.
std::vector<GradientSegment> segments_of(const Network& network, std::vector<at::Tensor> gradients);

}  // namespace syncopate
