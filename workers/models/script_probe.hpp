// What a module makes of a few random samples, before anything is trained: faults, and how it may be evaluated. For
// sources with LibTorch alone.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "workers/datasets/dataset.hpp"
#include "workers/models/text_task.hpp"

namespace syncopate {

// What the data and the loss ask of a module.
struct ScriptDemand {
  SampleShape shape;
  std::int64_t outputs = 0;    // per sample; of language models per token; of labels of tokens at least as many
  bool squared_error = false;  // what it returns are no logits
  TextTask task{};             // of tokens
  bool has_padding = false;    // that stands behind shorter sequences, where those of unlike lengths stand together
  std::int64_t shortest = 0;   // tokens of the shortest sequence; 0: not known

  bool asks_for_tokens() const { return shape.has_tokens() && task.kind != TextTask::Kind::classification; }
};

// Samples of a demand, as they come to forward.
struct ProbeInputs {
  at::Tensor inputs;
  at::Tensor lengths;  // undefined: forward takes none
};

// The longest that there are.
ProbeInputs probe_inputs(const ScriptDemand& demand, bool with_lengths);

// So many, the same few again and again; of sequences the shortest that there are, if known.
ProbeInputs repeated_inputs(const ScriptDemand& demand, bool with_lengths, std::int64_t samples);

// Whether forward writes to its inputs, or to the lengths.
bool changes_inputs(torch::jit::Module& module, const ProbeInputs& samples);

// What the module's code does always as in training, or always as in evaluation, because it was traced so: its
// dropouts, and what its normalisations go by. A sentence; empty: nothing of the kind.
std::string fixed_by_trace(const torch::jit::Module& module, bool in_training);

// Throws ScriptFault where these are not what the demand asks for. Of a loss: numbers with a gradient.
void check_outputs(const at::Tensor& outputs, const at::Tensor& inputs, const ScriptDemand& demand);

// Throws ScriptFault where numbers are not finite.
void check_finite(const at::Tensor& outputs, const at::Tensor& inputs);

// Adds random numbers to parameters, in place: a layer that starts at zero hides what a module does with its samples.
void move_parameters(const std::vector<at::Tensor>& parameters);

// Throws ScriptFault where a parameter's gradient is none that can be summed: one that is sparse.
void check_gradients(const at::Tensor& outputs, const std::vector<at::Tensor>& parameters,
                     const std::vector<std::string>& names);

// Throws ScriptFault where numbers or flags that are no tensors have changed.
void check_scalars(const torch::jit::Module& before, const torch::jit::Module& after);

// Whether samples disturb each other: four are not what two and two are.
bool mixes(torch::jit::Module& module, const ProbeInputs& samples);

// Of a causal task's sequences, in evaluation: throws ScriptFault where outputs depend on later tokens.
void check_causality(torch::jit::Module& module, const ProbeInputs& longest);

// Of sequences, in evaluation: throws ScriptFault where forward fails on shorter ones, down to the shortest. Returns
// whether a sequence's outputs are the same with padding behind it.
bool bears_padding(torch::jit::Module& module, const ScriptDemand& demand, const ProbeInputs& longest);

// Why there is no gradient or no product of the Hessian and a vector, of a module in evaluation whose numbers are
// float64; empty: there are.
std::string why_no_derivative(torch::jit::Module& module, const std::vector<at::Tensor>& parameters,
                              const ProbeInputs& samples);

}  // namespace syncopate
