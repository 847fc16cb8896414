// A feed-forward network as data: a list of layers, with each parameter's shape, place in the flat
// vector and way to be initialised. What the layers compute is in forward.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "workers/datasets/dataset.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

enum class LayerKind { flatten, linear, convolution, batch_norm, relu, max_pool };

// Parameters and buffers of a layer are numbered in the network's lists; -1: none.
struct Layer {
  LayerKind kind;
  int weight = -1;
  int bias = -1;
  int buffers = -1;  // running mean; the running variance follows
};

struct Parameter {
  std::string name;  // "linear2.bias": layers of a kind are numbered from 1
  std::vector<std::int64_t> shape;
  std::size_t size = 0;
  std::size_t offset = 0;  // in the flat vector
  double bound = 0;        // initial values are uniform in (centre - bound, centre + bound)
  double centre = 0;
};

struct Buffer {
  std::size_t size = 0;
  std::size_t offset = 0;
  float initial = 0;
};

class Network {
 public:
  explicit Network(const SampleShape& input) : input_(input), shape_(input) {}

  // Each appends a layer to those before. Source of the initial values: the bounds that PyTorch's
  // Linear and Conv2d have by default, uniform within 1 / sqrt(fan-in) for weights and biases.
  Network& linear(std::int64_t outputs);                                        // flattens first where needed
  Network& convolution(std::int64_t channels, std::int64_t kernel, bool bias);  // stride 1, no padding
  Network& batch_norm();
  Network& relu();
  Network& max_pool();  // 2 x 2

  // Fixes the flat layout: parameters of 2 and more dimensions first, then the others, each group in
  // the order of the layers. Call last.
  Network& lay_out();

  const SampleShape& input() const { return input_; }
  const SampleShape& output() const { return shape_; }  // all sizes positive, or the network is impossible
  const std::vector<Layer>& layers() const { return layers_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  // Indices into parameters(), by ascending offset.
  const std::vector<std::size_t>& flat_order() const { return flat_order_; }
  std::vector<ParameterTensor> tensors() const;  // likewise
  const std::vector<Buffer>& buffers() const { return buffers_; }

  std::size_t parameter_floats() const;
  std::size_t weight_floats() const;  // the first, decayed range of the flat vector
  std::size_t buffer_floats() const;

 private:
  std::string next_name(LayerKind kind, std::string_view word) const;
  int add_parameter(std::string name, std::vector<std::int64_t> shape, double bound, double centre = 0);

  SampleShape input_;
  SampleShape shape_;  // after the layers so far
  bool flat_ = false;  // tensors are (n, features) by now, no longer (n, channels, height, width)
  std::vector<Layer> layers_;
  std::vector<Parameter> parameters_;
  std::vector<std::size_t> flat_order_;
  std::vector<Buffer> buffers_;
};

}  // namespace syncopate
