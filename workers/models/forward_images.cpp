// What layers of images compute.
#include <limits>

#include "workers/models/forward_pass.hpp"

namespace syncopate {
namespace {

// Defaults of torch::nn::BatchNorm2d and GroupNorm.
constexpr double batch_norm_momentum = 0.1;
constexpr double epsilon = 1e-5;

}  // namespace

void ForwardPass::operator()(const layer::Convolution& layer) {
  x_ = at::conv2d(x_, parameter(layer.weight), parameter(layer.bias), layer.stride, layer.padding);
}

void ForwardPass::operator()(const layer::BatchNorm& layer) {
  const auto first = static_cast<std::size_t>(layer.buffers);
  x_ = at::batch_norm(x_, parameter(layer.weight), parameter(layer.bias), buffers_[first], buffers_[first + 1],
                      mode_ != Mode::evaluate, mode_ == Mode::measure ? 1.0 : batch_norm_momentum, epsilon,
                      /*cudnn_enabled=*/false);
}

void ForwardPass::operator()(const layer::GroupNorm& layer) {
  x_ = at::group_norm(x_, layer.groups, parameter(layer.weight), parameter(layer.bias), epsilon,
                      /*cudnn_enabled=*/false);
}

void ForwardPass::operator()(const layer::MaxPool&) { x_ = at::max_pool2d(x_, {2, 2}); }
void ForwardPass::operator()(const layer::MeanPool&) { x_ = x_.mean({2, 3}); }

void ForwardPass::operator()(const layer::ResidualBegin&) { residuals_.push_back(x_); }

void ForwardPass::operator()(const layer::ResidualEnd& layer) {
  at::Tensor around = std::move(residuals_.back());
  residuals_.pop_back();
  if (layer.stride > 1) {
    constexpr auto all = std::numeric_limits<std::int64_t>::max();
    around = around.slice(2, 0, all, layer.stride).slice(3, 0, all, layer.stride);
  }
  if (layer.zeros_before > 0 || layer.zeros_after > 0)
    around = at::constant_pad_nd(around, {0, 0, 0, 0, layer.zeros_before, layer.zeros_after});
  x_ = x_ + around;
}

}  // namespace syncopate
