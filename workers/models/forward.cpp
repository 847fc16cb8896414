#include "workers/models/forward.hpp"

#include <ATen/ATen.h>

#include <utility>
#include <variant>

#include "workers/models/forward_pass.hpp"

namespace syncopate {

std::vector<at::Tensor> view_parameters(const Network& network, const float* flat) {
  std::vector<at::Tensor> views;
  views.reserve(network.parameters().size());
  // from_blob takes no const memory; only who has passed memory that is not may write to a parameter.
  float* data = const_cast<float*>(flat);
  for (const auto& parameter : network.parameters())
    views.push_back(at::from_blob(data + parameter.offset, parameter.shape, at::kFloat));
  return views;
}

std::vector<at::Tensor> view_buffers(const Network& network, float* flat) {
  std::vector<at::Tensor> views;
  views.reserve(network.buffers().size());
  for (const auto& buffer : network.buffers()) {
    const std::vector<std::int64_t> vector = {static_cast<std::int64_t>(buffer.size)};
    views.push_back(at::from_blob(flat + buffer.offset, buffer.given ? buffer.shape : vector, at::kFloat));
  }
  return views;
}

void ForwardPass::operator()(const layer::Flatten&) { x_ = x_.flatten(1); }

void ForwardPass::operator()(const layer::Linear& layer) {
  at::Tensor inputs = std::move(x_);
  x_ = at::linear(inputs, parameter(layer.weight), parameter(layer.bias));
  if (!passes_) return;
  if (!x_.requires_grad()) x_.requires_grad_();  // the first one: parameters do not
  passes_->push_back({.layer = layer, .inputs = inputs.detach(), .outputs = x_});
}

// In place where it can be: the layers before (linear, convolution, normalisation, sum) do not need their outputs
// again, a branch that has just begun needs its input, and so does who records.
void ForwardPass::operator()(const layer::Relu&) {
  const bool is_kept = passes_ || (!residuals_.empty() && residuals_.back().is_same(x_));
  x_ = is_kept ? at::relu(x_) : at::relu_(x_);
}

void ForwardPass::operator()(const layer::Tanh&) { x_ = at::tanh(x_); }

// The other two need their inputs in the backward pass.
void ForwardPass::operator()(const layer::Silu&) { x_ = at::silu(x_); }
void ForwardPass::operator()(const layer::Gelu&) { x_ = at::gelu(x_); }

at::Tensor forward(const Network& network, const std::vector<at::Tensor>& parameters,
                   const std::vector<at::Tensor>& buffers, const at::Tensor& inputs, Mode mode, const Visits* visits) {
  ForwardPass pass(network, parameters, buffers, inputs, mode, visits);
  for (const Layer& layer : network.layers()) std::visit(pass, layer);
  return pass.output();
}

at::Tensor forward(const Network& network, const std::vector<at::Tensor>& parameters, const at::Tensor& inputs,
                   const Visits* visits, std::vector<LinearPass>& passes) {
  const std::vector<at::Tensor> no_buffers;
  ForwardPass pass(network, parameters, no_buffers, inputs, Mode::train, visits);
  pass.record(passes);
  for (const Layer& layer : network.layers()) std::visit(pass, layer);
  return pass.output();
}

at::Tensor forward(const Network& network, const std::vector<at::Tensor>& parameters, const SequenceBatch& texts,
                   Mode mode, const Visits* visits) {
  ForwardPass pass(network, parameters, texts, mode, visits);
  for (const Layer& layer : network.layers()) std::visit(pass, layer);
  return pass.output();
}

}  // namespace syncopate
