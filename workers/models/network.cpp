#include "workers/models/network.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace syncopate {

std::string Network::next_name(LayerKind kind, std::string_view word) const {
  const auto before = std::ranges::count(layers_, kind, &Layer::kind);
  return std::string(word) + std::to_string(before + 1);
}

int Network::add_parameter(std::string name, std::vector<std::int64_t> shape, double bound, double centre) {
  std::size_t size = 1;
  for (const auto extent : shape) size *= static_cast<std::size_t>(std::max<std::int64_t>(extent, 0));
  parameters_.push_back(
      {.name = std::move(name), .shape = std::move(shape), .size = size, .bound = bound, .centre = centre});
  return static_cast<int>(parameters_.size()) - 1;
}

Network& Network::linear(std::int64_t outputs) {
  const auto inputs = shape_.features();
  if (!flat_) layers_.push_back({.kind = LayerKind::flatten});
  flat_ = true;
  const double bound = 1 / std::sqrt(static_cast<double>(inputs));
  const std::string name = next_name(LayerKind::linear, "linear");
  const int weight = add_parameter(name + ".weight", {outputs, inputs}, bound);
  const int bias = add_parameter(name + ".bias", {outputs}, bound);
  layers_.push_back({.kind = LayerKind::linear, .weight = weight, .bias = bias});
  shape_ = {.channels = outputs, .height = 1, .width = 1};
  return *this;
}

Network& Network::convolution(std::int64_t channels, std::int64_t kernel, bool bias) {
  const double bound = 1 / std::sqrt(static_cast<double>(shape_.channels * kernel * kernel));
  const std::string name = next_name(LayerKind::convolution, "convolution");
  const int weight = add_parameter(name + ".weight", {channels, shape_.channels, kernel, kernel}, bound);
  const int shift = bias ? add_parameter(name + ".bias", {channels}, bound) : -1;
  layers_.push_back({.kind = LayerKind::convolution, .weight = weight, .bias = shift});
  // Once impossible, it stays so: a later layer must not turn it positive again.
  shape_ = {.channels = channels,
            .height = std::max<std::int64_t>(shape_.height - kernel + 1, 0),
            .width = std::max<std::int64_t>(shape_.width - kernel + 1, 0)};
  return *this;
}

Network& Network::batch_norm() {
  const std::string name = next_name(LayerKind::batch_norm, "batch_norm");
  const int weight = add_parameter(name + ".weight", {shape_.channels}, 0, 1);
  const int bias = add_parameter(name + ".bias", {shape_.channels}, 0, 0);
  layers_.push_back(
      {.kind = LayerKind::batch_norm, .weight = weight, .bias = bias, .buffers = static_cast<int>(buffers_.size())});
  for (const float initial : {0.0f, 1.0f}) {
    const auto size = static_cast<std::size_t>(shape_.channels);
    buffers_.push_back({.size = size, .offset = buffer_floats(), .initial = initial});
  }
  return *this;
}

Network& Network::relu() {
  layers_.push_back({.kind = LayerKind::relu});
  return *this;
}

Network& Network::max_pool() {
  layers_.push_back({.kind = LayerKind::max_pool});
  shape_.height /= 2;
  shape_.width /= 2;
  return *this;
}

Network& Network::lay_out() {
  flat_order_.resize(parameters_.size());
  std::iota(flat_order_.begin(), flat_order_.end(), std::size_t{0});
  std::stable_partition(flat_order_.begin(), flat_order_.end(),
                        [&](std::size_t p) { return parameters_[p].shape.size() >= 2; });
  std::size_t offset = 0;
  for (const auto p : flat_order_) {
    parameters_[p].offset = offset;
    offset += parameters_[p].size;
  }
  return *this;
}

std::vector<ParameterTensor> Network::tensors() const {
  std::vector<ParameterTensor> tensors;
  for (const auto p : flat_order_)
    tensors.push_back({.name = parameters_[p].name, .offset = parameters_[p].offset, .size = parameters_[p].size});
  return tensors;
}

std::size_t Network::parameter_floats() const {
  std::size_t sum = 0;
  for (const auto& parameter : parameters_) sum += parameter.size;
  return sum;
}

std::size_t Network::weight_floats() const {
  std::size_t sum = 0;
  for (const auto& parameter : parameters_)
    if (parameter.shape.size() >= 2) sum += parameter.size;
  return sum;
}

std::size_t Network::buffer_floats() const {
  return buffers_.empty() ? 0 : buffers_.back().offset + buffers_.back().size;
}

}  // namespace syncopate
