#include "workers/models/network.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <utility>

#include "workers/base/random.hpp"

namespace syncopate {

namespace {

// Uniform in (-1, 1), or standard normal.
void draw(const RandomStream& stream, Initial::Law law, std::vector<double>& values) {
  if (law == Initial::Law::normal) return fill_standard_normal(stream, 0, values);
  stream.fill_uniform(0, values);
  for (double& value : values) value = 2 * value - 1;
}

}  // namespace

std::vector<float> initial_parameters(const Network& network, std::uint64_t seed) {
  std::vector<float> flat(network.parameter_floats());
  std::vector<double> values;
  for (std::size_t p = 0; p < network.parameters().size(); ++p) {
    const Parameter& parameter = network.parameters()[p];
    const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(parameter.offset);
    if (parameter.given) {
      std::ranges::copy(*parameter.given, begin);
      continue;
    }
    const Initial& initial = parameter.initial;
    values.assign(parameter.size, 0);
    if (initial.spread > 0)
      draw({.seed = seed, .purpose = Purpose::initial_parameters, .step = static_cast<std::int64_t>(p)}, initial.law,
           values);
    std::ranges::transform(values, begin,
                           [&](double value) { return static_cast<float>(initial.centre + value * initial.spread); });
  }
  return flat;
}

std::string Network::next_name(std::string_view word) const {
  const auto before = std::ranges::count_if(parameters_, [&](const Parameter& parameter) {
    return parameter.name.starts_with(word) && parameter.name.ends_with(".weight");
  });
  return std::string(word) + std::to_string(before + 1);
}

int Network::add_parameter(std::string name, std::vector<std::int64_t> shape, const Initial& initial) {
  std::size_t size = 1;
  for (const auto extent : shape) size *= static_cast<std::size_t>(std::max<std::int64_t>(extent, 0));
  parameters_.push_back({.name = std::move(name), .shape = std::move(shape), .size = size, .initial = initial});
  return static_cast<int>(parameters_.size()) - 1;
}

int Network::add_scale_and_shift(std::string_view word, double scale) {
  const std::string name = next_name(word);
  const int weight = add_parameter(name + ".weight", {shape_.channels}, {.centre = scale});
  add_parameter(name + ".bias", {shape_.channels}, {});
  return weight;
}

Network& Network::linear(std::int64_t outputs, const LinearOptions& options) {
  if (form_ == Form::image) {
    append(layer::Flatten{});
    shape_ = {.channels = shape_.features()};
    form_ = Form::vector;
  }
  const auto inputs = shape_.channels;
  const Initial usual{.spread = 1 / std::sqrt(static_cast<double>(inputs))};
  const auto weights = options.deviation ? Initial{.spread = *options.deviation, .law = Initial::Law::normal} : usual;
  const std::string name = next_name("linear");
  layer::Linear layer{.weight = add_parameter(name + ".weight", {outputs, inputs}, weights)};
  if (options.bias) layer.bias = add_parameter(name + ".bias", {outputs}, options.deviation ? Initial{} : usual);
  shape_.channels = outputs;
  return append(layer);
}

// Even, for numbers are drawn in pairs.
Network& Network::dropout(double share) {
  assert(share >= 0 && share < 1);
  if (share == 0) return *this;
  append(layer::Dropout{.share = share, .first_number = dropout_numbers_});
  const std::int64_t places = form_ == Form::texts ? input_.width : 1;  // of the longest
  dropout_numbers_ += (std::max<std::int64_t>(shape_.features() * places, 0) + 1) / 2 * 2;
  return *this;
}

Network& Network::script(std::shared_ptr<const ScriptModule> module, const ScriptContents& contents,
                         std::int64_t outputs) {
  assert(layers_.empty());
  parameters_ = contents.parameters;
  buffers_ = contents.buffers;
  std::size_t offset = 0;
  for (Buffer& buffer : buffers_) offset = (buffer.offset = offset) + buffer.size;
  mixes_samples_ = contents.mixes_samples;
  draws_ = contents.draws;
  why_no_derivative_ = contents.why_no_derivative;
  note_ = contents.note;
  shape_ = {.channels = outputs};
  form_ = Form::vector;
  return append(layer::Script{std::move(module)});
}

Network& Network::lay_out() {
  assert(residual_shapes_.empty());
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
    tensors.push_back(
        {.name = parameters_[p].name,
         .offset = parameters_[p].offset,
         .size = parameters_[p].size,
         .place = p,
         .rows = parameters_[p].shape.size() > 1 ? static_cast<std::size_t>(parameters_[p].shape[0]) : 0});
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
