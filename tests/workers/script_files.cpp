#include "tests/workers/script_files.hpp"

#include <fmt/format.h>
#include <torch/script.h>

#include <algorithm>
#include <numeric>
#include <sstream>

namespace syncopate {
namespace {

at::Tensor tensor_of(const ScriptTensor& described) {
  const auto size =
      std::accumulate(described.shape.begin(), described.shape.end(), std::int64_t{1}, std::multiplies<>());
  std::vector<float> values = described.values;
  for (std::int64_t i = 0; values.size() < static_cast<std::size_t>(size); ++i)
    values.push_back(0.01f * static_cast<float>(1 + i % 50));
  const at::Tensor floats = at::from_blob(values.data(), described.shape, at::kFloat).clone();
  const bool is_trained = described.kind == ScriptTensor::Kind::parameter;
  switch (described.type) {
    case ScriptTensor::Type::floats:
      return floats.requires_grad_(is_trained);
    case ScriptTensor::Type::doubles:
      return floats.to(at::kDouble);
    case ScriptTensor::Type::integers:
      return floats.to(at::kLong);
  }
  return {};
}

// Writes each kind of layer as a line of TorchScript.
class Writer {
 public:
  explicit Writer(const Network& network) : network_(network) {}

  void operator()(const layer::Flatten&) { line("x = torch.flatten(x, 1)"); }
  void operator()(const layer::Linear& layer) {
    line(fmt::format("x = torch.linear(x, {}, {})", parameter(layer.weight), parameter(layer.bias)));
  }
  void operator()(const layer::Convolution& layer) {
    line(fmt::format("x = torch.conv2d(x, {0}, {1}, [{2}, {2}], [{3}, {3}])", parameter(layer.weight),
                     parameter(layer.bias), layer.stride, layer.padding));
  }
  void operator()(const layer::BatchNorm& layer) {
    line(fmt::format("x = torch.batch_norm(x, {}, {}, self.buffer{}, self.buffer{}, self.training, 0.1, 1e-05, False)",
                     parameter(layer.weight), parameter(layer.bias), layer.buffers, layer.buffers + 1));
  }
  void operator()(const layer::GroupNorm& layer) {
    line(fmt::format("x = torch.group_norm(x, {}, {}, {})", layer.groups, parameter(layer.weight),
                     parameter(layer.bias)));
  }
  // In place as in forward.cpp: in these networks no residual branch begins just before a ReLU.
  void operator()(const layer::Relu&) { line("x = torch.relu_(x)"); }
  void operator()(const layer::MaxPool&) { line("x = torch.max_pool2d(x, [2, 2])"); }
  void operator()(const layer::MeanPool&) { line("x = torch.mean(x, [2, 3])"); }
  void operator()(const layer::ResidualBegin&) { line("r = x"); }
  void operator()(const layer::ResidualEnd& layer) {
    // Two slices. r[:, :, ::2, ::2] would be four slices, and each fills a tensor in the backward pass.
    for (const int dimension : {2, 3})
      if (layer.stride > 1) line(fmt::format("r = torch.slice(r, {}, 0, None, {})", dimension, layer.stride));
    if (layer.zeros_before > 0 || layer.zeros_after > 0)
      line(fmt::format("r = torch.constant_pad_nd(r, [0, 0, 0, 0, {}, {}])", layer.zeros_before, layer.zeros_after));
    line("x = x + r");
  }
  template <typename Other>
  void operator()(const Other&) {
    throw std::logic_error("a layer that no test has needed so far");
  }

  std::string lines() const { return lines_.str(); }

 private:
  void line(const std::string& text) { lines_ << text << "\n"; }
  std::string parameter(int index) const {
    if (index < 0) return "None";
    std::string name = network_.parameters()[static_cast<std::size_t>(index)].name;
    std::ranges::replace(name, '.', '_');
    return "self." + name;
  }

  const Network& network_;
  std::ostringstream lines_;
};

}  // namespace

void save_script(const std::string& file, const std::vector<ScriptTensor>& tensors, const std::string& forward,
                 const std::string& arguments) {
  torch::jit::Module module("Net");
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_attribute("calls", c10::IntType::get(), 0);
  for (const ScriptTensor& tensor : tensors)
    module.register_parameter(tensor.name, tensor_of(tensor), tensor.kind == ScriptTensor::Kind::buffer);
  std::istringstream lines(forward);
  std::string source = "def forward(self, " + arguments + "):\n";
  for (std::string line; std::getline(lines, line);) source += "    " + line + "\n";
  module.define(source);
  module.save(file);
}

void save_nested_script(const std::string& file) {
  torch::jit::Module module("Net");
  torch::jit::Module inner("Inner", module._ivalue()->compilation_unit());
  for (torch::jit::Module* const part : {&module, &inner})
    part->register_attribute("training", c10::BoolType::get(), true);
  inner.register_parameter("weight", tensor_of({.name = "weight", .shape = {4, 3}}), false);
  inner.define("def forward(self, x):\n    return torch.dropout(torch.linear(x, self.weight), 0.5, self.training)\n");
  module.register_module("inner", inner);
  module.define("def forward(self, x):\n    return self.inner.forward(x)\n");
  module.save(file);
}

void save_script(const std::string& file, const Network& network, const std::vector<float>& parameters) {
  std::vector<ScriptTensor> tensors;
  for (const Parameter& parameter : network.parameters()) {
    const auto begin = parameters.begin() + static_cast<std::ptrdiff_t>(parameter.offset);
    tensors.push_back({.name = parameter.name,
                       .shape = parameter.shape,
                       .values = {begin, begin + static_cast<std::ptrdiff_t>(parameter.size)}});
    std::ranges::replace(tensors.back().name, '.', '_');
  }
  for (std::size_t b = 0; b < network.buffers().size(); ++b) {
    const Buffer& buffer = network.buffers()[b];
    tensors.push_back({.name = fmt::format("buffer{}", b),
                       .shape = {static_cast<std::int64_t>(buffer.size)},
                       .values = *buffer.initial,
                       .kind = ScriptTensor::Kind::buffer});
  }
  Writer writer(network);
  for (const Layer& layer : network.layers()) std::visit(writer, layer);
  save_script(file, tensors, writer.lines() + "return x\n");
}

}  // namespace syncopate
