#include "workers/models/forward.hpp"

#include <ATen/ATen.h>

namespace syncopate {
namespace {

// Defaults of torch::nn::BatchNorm2d.
constexpr double batch_norm_momentum = 0.1;
constexpr double batch_norm_epsilon = 1e-5;

}  // namespace

std::vector<at::Tensor> view_parameters(const Network& network, const float* flat) {
  std::vector<at::Tensor> views;
  views.reserve(network.parameters().size());
  // from_blob takes no const memory; nothing here writes to a parameter.
  float* data = const_cast<float*>(flat);
  for (const auto& parameter : network.parameters())
    views.push_back(at::from_blob(data + parameter.offset, parameter.shape, at::kFloat));
  return views;
}

std::vector<at::Tensor> view_buffers(const Network& network, float* flat) {
  std::vector<at::Tensor> views;
  views.reserve(network.buffers().size());
  for (const auto& buffer : network.buffers())
    views.push_back(at::from_blob(flat + buffer.offset, {static_cast<std::int64_t>(buffer.size)}, at::kFloat));
  return views;
}

at::Tensor forward(const Network& network, const std::vector<at::Tensor>& parameters,
                   const std::vector<at::Tensor>& buffers, const at::Tensor& inputs, Mode mode) {
  const auto parameter = [&](int index) {
    return index < 0 ? at::Tensor() : parameters[static_cast<std::size_t>(index)];
  };
  at::Tensor x = inputs;
  for (const Layer& layer : network.layers()) {
    switch (layer.kind) {
      case LayerKind::flatten:
        x = x.flatten(1);
        break;
      case LayerKind::linear:
        x = at::linear(x, parameter(layer.weight), parameter(layer.bias));
        break;
      case LayerKind::convolution:
        x = at::conv2d(x, parameter(layer.weight), parameter(layer.bias));
        break;
      // In place: the layers before (linear, convolution, batch norm) do not need their outputs again.
      case LayerKind::relu:
        at::relu_(x);
        break;
      case LayerKind::max_pool:
        x = at::max_pool2d(x, {2, 2});
        break;
      case LayerKind::batch_norm: {
        const auto first = static_cast<std::size_t>(layer.buffers);
        x = at::batch_norm(x, parameter(layer.weight), parameter(layer.bias), buffers[first], buffers[first + 1],
                           mode != Mode::evaluate, mode == Mode::measure ? 1.0 : batch_norm_momentum,
                           batch_norm_epsilon, /*cudnn_enabled=*/false);
        break;
      }
    }
  }
  return x;
}

}  // namespace syncopate
