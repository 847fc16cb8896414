#include "workers/models/derivatives.hpp"

#include <torch/csrc/autograd/autograd.h>

#include <cassert>
#include <cstddef>

#include "workers/models/forward.hpp"

namespace syncopate {

Derivatives::Derivatives(const Network& network, const float* parameters, std::span<const double> direction)
    : network_(network), parameters_(view_parameters(network, parameters)), sum_(network.parameter_floats()) {
  assert(direction.empty() || direction.size() == sum_.size());
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    parameters_[p] = parameters_[p].to(at::kDouble).requires_grad_();
    if (!direction.empty())
      directions_.push_back(at::from_blob(const_cast<double*>(direction.data()) + network.parameters()[p].offset,
                                          parameters_[p].sizes(), at::kDouble));
  }
}

void Derivatives::add(const at::Tensor& loss_sum) {
  const bool is_product = !directions_.empty();
  auto found = torch::autograd::grad({loss_sum}, parameters_, {}, is_product, is_product, /*allow_unused=*/true);
  if (is_product) {
    at::Tensor product = at::zeros({}, at::kDouble);
    for (std::size_t p = 0; p < found.size(); ++p)
      if (found[p].defined()) product = product + (found[p] * directions_[p]).sum();
    if (!product.requires_grad()) return;  // the gradient is constant
    found = torch::autograd::grad({product}, parameters_, {}, c10::nullopt, false, true);
  }
  for (std::size_t p = 0; p < found.size(); ++p) {
    if (!found[p].defined()) continue;  // nothing depends on it
    const at::Tensor flat = found[p].contiguous();
    const Parameter& parameter = network_.parameters()[p];
    for (std::size_t i = 0; i < parameter.size; ++i) sum_[parameter.offset + i] += flat.data_ptr<double>()[i];
  }
}

std::vector<double> Derivatives::mean_over(std::int64_t samples) const {
  std::vector<double> mean = sum_;
  for (double& element : mean) element /= static_cast<double>(samples);
  return mean;
}

}  // namespace syncopate
