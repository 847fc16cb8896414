// A module that torch.jit.script or torch.jit.trace has saved: its parameters and buffers, and its forward pass.
// LibTorch itself stays out of this header.
//
// Of one module there are as many copies as threads use it at once; all share the tensors that nobody trains. A copy's
// parameters and buffers are bound to flat memory for a forward pass, without a copy.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "workers/models/forward.hpp"
#include "workers/models/network.hpp"
#include "workers/models/script_model.hpp"

namespace syncopate {

struct ScriptDemand;

class ScriptModule {
 public:
  // Loads it, with its values. Throws ScriptFault if the file is no module, or its tensors cannot be trained.
  explicit ScriptModule(const std::filesystem::path& file);
  ~ScriptModule();

  // What forward gives for these inputs. In training it writes to the float and integer buffers among `buffers` what
  // the module makes of them; in evaluation it may write there as well. Parameters and buffers are in the order of
  // contents(); where those are float64, so is all the module has. `lengths`: (n,) int64, of sequences, for a forward
  // that takes them. Throws ScriptFault.
  at::Tensor forward(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
                     const at::Tensor& inputs, Mode mode, const at::Tensor* lengths = nullptr) const;

  // Computes a few random samples, to see what a training does with the module. Call once, before all forwards. Throws
  // ScriptFault where it does not give what is asked for.
  void probe(const ScriptDemand& demand);

  // Computes as many samples at once as a run will, without their gradients. After probe(). Throws ScriptFault.
  void try_batches(const ScriptDemand& demand, const ScriptOptions::Trial& trial) const;

  // How many numbers it gives, per sample or per token. After probe().
  std::int64_t outputs() const;

  // Whether what it gives for a sequence does not change with padding behind it.
  bool bears_padding() const;

  // Without buffers before probe().
  ScriptContents contents(const ScriptOptions& options) const;

 private:
  struct Tensors;
  class Copy;
  std::unique_ptr<Tensors> tensors_;
};

// How the inputs of a batch come to forward: vectors as (n, features), images as (n, channels, height, width).
std::vector<std::int64_t> script_input_sizes(std::int64_t samples, const SampleShape& shape);

// The network that it is. Throws ScriptFault. The same file, data and options give the same once more.
Network script_network(const std::filesystem::path& file, const std::string& hash, const DatasetSize& data,
                       const ScriptOptions& options);

}  // namespace syncopate
