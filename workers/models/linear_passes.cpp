#include "workers/models/linear_passes.hpp"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

namespace syncopate {
namespace {

template <typename Kind, typename... Kinds>
constexpr bool is_one_of = (std::is_same_v<Kind, Kinds> || ...);

bool treats_samples_apart(const Layer& layer) {
  return std::visit(
      [](const auto& of_kind) {
        return is_one_of<std::decay_t<decltype(of_kind)>, layer::Flatten, layer::Linear, layer::Relu, layer::Silu,
                         layer::Gelu, layer::Tanh, layer::Dropout>;
      },
      layer);
}

}  // namespace

bool is_made_of_linear_layers(const Network& network) {
  return !network.input().has_tokens() && !network.parameters().empty() &&
         std::ranges::all_of(network.layers(), treats_samples_apart);
}

LinearGradients::LinearGradients(std::vector<LinearPass> passes, const at::Tensor& loss, double share)
    : passes_(std::move(passes)) {
  std::vector<at::Tensor> outputs;
  for (const LinearPass& pass : passes_) outputs.push_back(pass.outputs);
  auto gradients = torch::autograd::grad({loss}, outputs, {at::scalar_tensor(share, at::kFloat)});
  for (std::size_t i = 0; i < passes_.size(); ++i) passes_[i].outputs = std::move(gradients[i]);
}

std::vector<at::Tensor> LinearGradients::of(Rows rows, std::size_t parameters) const {
  std::vector<at::Tensor> gradients(parameters);
  for (const LinearPass& pass : passes_) {
    const at::Tensor by_outputs = pass.outputs.narrow(0, rows.begin, rows.count);
    gradients[static_cast<std::size_t>(pass.layer.weight)] =
        at::mm(by_outputs.t(), pass.inputs.narrow(0, rows.begin, rows.count));
    if (pass.layer.bias >= 0) gradients[static_cast<std::size_t>(pass.layer.bias)] = by_outputs.sum(0);
  }
  return gradients;
}

void LinearGradients::add_to(std::vector<at::Tensor> parameters, Rows rows) const {
  for (const LinearPass& pass : passes_) {
    const at::Tensor by_outputs = pass.outputs.narrow(0, rows.begin, rows.count);
    at::Tensor& weight = parameters[static_cast<std::size_t>(pass.layer.weight)];
    weight.addmm_(by_outputs.t(), pass.inputs.narrow(0, rows.begin, rows.count));
    if (pass.layer.bias >= 0) parameters[static_cast<std::size_t>(pass.layer.bias)].add_(by_outputs.sum(0));
  }
}

}  // namespace syncopate
