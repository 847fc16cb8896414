// Forward passes of networks. Only sources with LibTorch include it.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "workers/models/batch.hpp"
#include "workers/models/network.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

struct LinearPass;

// Batch normalisation uses the batch's own statistics (train and measure) or the running statistics (evaluate). Dropout
// is active except in evaluate. In measure the running statistics become those of the batch.
enum class Mode { train, evaluate, measure };

// A view of a flat vector in main memory. Write to the view only if the memory is mutable. The parameter is const,
// although from_blob takes only mutable memory.
at::Tensor flat_view(const float* flat, std::size_t size);

// Views of the flat vector (P,), one per parameter in the network's order, without a copy.
std::vector<at::Tensor> view_parameters(const Network& network, const at::Tensor& flat);

// Views of the flat normalisation statistics, one per buffer in the network's order.
std::vector<at::Tensor> view_buffers(const Network& network, const at::Tensor& flat);

// softmax(Q K^T / sqrt(d)) V, where no token attends to later tokens, by an operator of LibTorch 2 and later. All
// tensors: (texts, heads, tokens, d).
at::Tensor causal_attention_by_torch(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values);

// Returns one row of outputs, such as logits, per label: (labels, outputs). In train mode the running statistics in
// `buffers` are updated with PyTorch's momentum of 0.1; networks of texts have none. `visits` (n,): the sample of each
// row, for random draws; null: no draws. `passes`, if not null, receives inputs and outputs of all linear layers.
at::Tensor forward(const Network& network, const std::vector<at::Tensor>& parameters,
                   const std::vector<at::Tensor>& buffers, const NetworkInputs& inputs, Mode mode,
                   const Visits* visits = nullptr, std::vector<LinearPass>* passes = nullptr);

// Outputs of a user's own module (torch_script.cpp) for `inputs`, or for `texts` if not null.
at::Tensor forward_script(const ScriptModule& module, const Network& network, const std::vector<at::Tensor>& parameters,
                          const std::vector<at::Tensor>& buffers, const at::Tensor& inputs, const SequenceBatch* texts,
                          Mode mode);

// A linear layer with its inputs (n, i) and outputs (n, o) in a forward pass.
struct LinearPass {
  layer::Linear layer;
  at::Tensor inputs;
  at::Tensor outputs;
};

// Whether all parameters of a network belong to linear layers on vectors, and no layer mixes samples.
bool is_made_of_linear_layers(const Network& network);

// Mixup: each sample of a micro-batch is mixed with another sample of the same micro-batch. The losses are mixed, too:
//   x := (1 - l) x + l x_p,  loss (1 - l) L(y) + l L(y_p).
// The share l ~ Beta(alpha, alpha) of a micro-batch and the permutation p depend on (seed, worker, step, micro-batch).
// Source:  Zhang et al. 2018, "mixup: beyond empirical risk minimization".
struct Mixture {
  float share = 0;                      // l, the share of the partner
  std::vector<std::uint32_t> partners;  // (B,), indices in the micro-batch
};

// `alpha`: > 0.
Mixture drawn_mixture(std::uint64_t seed, const MicroBatch& micro_batch, std::size_t samples, double alpha);

// Mixes inputs (B, features), row by row.
void mix(const Mixture& mixture, std::span<float> inputs);

// Random numbers drawn by LibTorch's operators, for example for dropout in a user's own module. LibTorch has one
// generator for all threads of a process. While a SeededDraws exists, the operators of its thread draw from a separate
// generator.
class SeededDraws {
 public:
  // Without a seed it does nothing.
  explicit SeededDraws(std::optional<std::uint64_t> seed);
  ~SeededDraws();
  SeededDraws(const SeededDraws&) = delete;
  SeededDraws& operator=(const SeededDraws&) = delete;

  // Restarts the sequence of numbers from the beginning.
  static void repeat();
  // How often this thread's operators have drawn while a SeededDraws existed.
  static std::uint64_t drawn();

 private:
  bool* are_seeded_ = nullptr;  // a flag of this thread, for the destructor, which must not throw; null: no seed
};

// The seed of a micro-batch, from the counter-based streams.
std::uint64_t seed_of_draws(std::uint64_t seed, const MicroBatch& micro_batch);

}  // namespace syncopate
