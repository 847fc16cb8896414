#include "workers/models/gradient_tensors.hpp"

#include <torch/csrc/autograd/autograd.h>

#include <cstddef>
#include <memory>
#include <utility>

namespace syncopate {

std::vector<at::Tensor> gradients_of(const at::Tensor& loss, const std::vector<at::Tensor>& parameters, double share) {
  auto gradients = torch::autograd::grad({loss}, parameters, {at::scalar_tensor(share, at::kFloat)},
                                         /*retain_graph=*/{}, /*create_graph=*/false, /*allow_unused=*/true);
  for (std::size_t p = 0; p < gradients.size(); ++p)
    gradients[p] = gradients[p].defined() ? gradients[p].contiguous() : at::zeros_like(parameters[p]);
  return gradients;
}

void add_to(std::vector<at::Tensor>& sum, std::vector<at::Tensor> summand) {
  if (sum.empty()) {
    sum = std::move(summand);
    return;
  }
  for (std::size_t p = 0; p < sum.size(); ++p) {
    // The gradients of two summands of a network are one tensor.
    if (sum[p].storage().use_count() == 1)
      sum[p].add_(summand[p]);
    else
      sum[p] = sum[p] + summand[p];
  }
}

std::vector<GradientSegment> segments_of(const Network& network, std::vector<at::Tensor> gradients) {
  std::vector<GradientSegment> segments;
  for (const auto p : network.flat_order()) {
    const Parameter& parameter = network.parameters()[p];
    auto owner = std::make_shared<const at::Tensor>(std::move(gradients[p]));
    const float* data = owner->data_ptr<float>();
    segments.push_back({.offset = parameter.offset, .size = parameter.size, .data = data, .owner = std::move(owner)});
  }
  return segments;
}

}  // namespace syncopate
