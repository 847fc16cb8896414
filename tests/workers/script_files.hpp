// Files as torch.jit.script saves them, written without Python. This header does not include LibTorch.
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
  std::vector<std::int64_t> shape{};  // empty: the tensor is a single number
  std::vector<float> values{};        // default: 0.01, 0.02, ...
  Kind kind = Kind::parameter;
  Type type = Type::floats;
};

// Saves a module with these tensors and a counter, self.calls. `forward` has the lines of forward(self, x), or of
// forward with other `arguments`.
void save_script(const std::string& file, const std::vector<ScriptTensor>& tensors, const std::string& forward,
                 const std::string& arguments = "x");

// Saves a module whose submodule `inner` is a linear layer from 3 features to 4 classes with dropout.
void save_nested_script(const std::string& file);

// Saves a network's layers. `parameters` are in the order of the network's flat vector.
void save_script(const std::string& file, const Network& network, const std::vector<float>& parameters);

}  // namespace syncopate
