// Files as saved by torch.jit.script, made without Python. No LibTorch here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "workers/models/network.hpp"

namespace syncopate {

struct ScriptTensor {
  enum class Kind { parameter, frozen_parameter, buffer };
  enum class Type { floats, doubles, integers };

  std::string name;
  std::vector<std::int64_t> shape{};  // empty for a number
  std::vector<float> values{};        // default: 0.01, 0.02, ...
  Kind kind = Kind::parameter;
  Type type = Type::floats;
};

// A module with these tensors. `forward` contains the lines of its forward(self, x), or of one with other arguments. It
// also has a number, self.calls.
void save_script(const std::string& file, const std::vector<ScriptTensor>& tensors, const std::string& forward,
                 const std::string& arguments = "x");

// A linear layer from 3 features to 4 classes with dropout, in a submodule: inner.weight.
void save_nested_script(const std::string& file);

// A network's layers, written out, with these values. Parameters and buffers are in the network's order.
void save_script(const std::string& file, const Network& network, const std::vector<float>& parameters);

}  // namespace syncopate
