// The layers of images, with the shapes that they leave.
#include <algorithm>
#include <cassert>
#include <cmath>

#include "workers/models/network.hpp"

namespace syncopate {
namespace {

// Once impossible, it stays so: a later layer must not turn it positive again.
std::int64_t pixels_after(std::int64_t pixels, const ConvolutionOptions& options) {
  const auto room = pixels + 2 * options.padding - options.kernel;
  return pixels <= 0 || room < 0 ? 0 : room / options.stride + 1;
}

}  // namespace

Network& Network::convolution(const ConvolutionOptions& options) {
  assert(form_ == Form::image);
  const auto& [channels, kernel, bias, stride, padding, deviation] = options;
  const Initial usual{.spread = 1 / std::sqrt(static_cast<double>(shape_.channels * kernel * kernel))};
  const auto weights = deviation ? Initial{.spread = *deviation, .law = Initial::Law::normal} : usual;
  const std::string name = next_name("convolution");
  layer::Convolution layer{.stride = stride, .padding = padding};
  layer.weight = add_parameter(name + ".weight", {channels, shape_.channels, kernel, kernel}, weights);
  if (bias) layer.bias = add_parameter(name + ".bias", {channels}, deviation ? Initial{} : usual);
  shape_ = {.channels = channels,
            .height = pixels_after(shape_.height, options),
            .width = pixels_after(shape_.width, options)};
  return append(layer);
}

Network& Network::batch_norm(double scale) {
  const int weight = add_scale_and_shift("batch_norm", scale);
  append(layer::BatchNorm{.weight = weight, .bias = weight + 1, .buffers = static_cast<int>(buffers_.size())});
  for (const float initial : {0.0f, 1.0f}) {
    const auto size = static_cast<std::size_t>(shape_.channels);
    buffers_.push_back({.size = size, .offset = buffer_floats(), .initial = initial});
  }
  return *this;
}

Network& Network::group_norm(std::int64_t groups, double scale) {
  assert(shape_.channels % groups == 0);
  const int weight = add_scale_and_shift("group_norm", scale);
  return append(layer::GroupNorm{.weight = weight, .bias = weight + 1, .groups = groups});
}

Network& Network::max_pool() {
  shape_.height /= 2;
  shape_.width /= 2;
  return append(layer::MaxPool{});
}

Network& Network::mean_pool() {
  assert(form_ == Form::image);
  shape_ = {.channels = shape_.channels};
  form_ = Form::vector;
  return append(layer::MeanPool{});
}

Network& Network::begin_residual() {
  residual_shapes_.push_back(shape_);
  return append(layer::ResidualBegin{});
}

Network& Network::end_residual(std::int64_t stride) {
  const SampleShape before = residual_shapes_.back();
  residual_shapes_.pop_back();
  assert((before.height + stride - 1) / stride == shape_.height &&
         (before.width + stride - 1) / stride == shape_.width);
  const auto zeros = shape_.channels - before.channels;
  assert(zeros >= 0);
  return append(layer::ResidualEnd{.stride = stride, .zeros_before = zeros / 2, .zeros_after = zeros - zeros / 2});
}

}  // namespace syncopate
