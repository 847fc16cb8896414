// Derivatives of a sum of losses by a network's parameters, in double precision. For sources with LibTorch alone.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "workers/models/network.hpp"

namespace syncopate {

class Derivatives {
 public:
  // At parameters (P,). `direction` (P,): products of the Hessian with it; empty: gradients. It must outlive this.
  Derivatives(const Network& network, const float* parameters, std::span<const double> direction);

  // What losses are computed of: one tensor per parameter in the network's order.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

  // Of the Hessian by differentiating the gradient's product with the direction once more.
  void add(const at::Tensor& loss_sum);

  // (P,), of all that was added divided by so many samples.
  std::vector<double> mean_over(std::int64_t samples) const;

 private:
  const Network& network_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> directions_;  // likewise; none: gradients
  std::vector<double> sum_;
};

}  // namespace syncopate
