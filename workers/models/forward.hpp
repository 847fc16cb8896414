// What a network computes. Only .cpp files that include LibTorch can use it; the tensors are declared
// here without it.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "workers/models/network.hpp"
#include "workers/training/objective.hpp"

namespace at {
class Tensor;
}

namespace syncopate {

struct LinearPass;
struct SequenceBatch;
struct Visits;

// Batch normalisation by the batch's own statistics (train), or by the running ones (evaluate), and dropout in training
// alone; measure: as train, and the running statistics become the batch's.
enum class Mode { train, evaluate, measure };

// Views of the flat vector (P,), one per parameter in the network's order, without a copy.
std::vector<at::Tensor> view_parameters(const Network& network, const float* flat);

// Views of the flat buffers, one per buffer in the network's order.
std::vector<at::Tensor> view_buffers(const Network& network, float* flat);

// Logits (n, classes) of inputs (n, channels, height, width). In train mode the running statistics
// in `buffers` move towards the batch's, with PyTorch's momentum of 0.1. `visits`: whose the rows are, (n,); null where
// nothing is drawn for them.
at::Tensor forward(const Network& network, const std::vector<at::Tensor>& parameters,
                   const std::vector<at::Tensor>& buffers, const at::Tensor& inputs, Mode mode,
                   const Visits* visits = nullptr);

// The same in train mode of a network without buffers, with all that its linear layers take in and give.
at::Tensor forward(const Network& network, const std::vector<at::Tensor>& parameters, const at::Tensor& inputs,
                   const Visits* visits, std::vector<LinearPass>& passes);

// The same of texts, by a network without buffers.
at::Tensor forward(const Network& network, const std::vector<at::Tensor>& parameters, const SequenceBatch& texts,
                   Mode mode, const Visits* visits = nullptr);

// Linear layers whose inputs and outputs a forward pass keeps: once the loss has been differentiated by the outputs,
// the weights' gradient of any rows of the batch is a product of these rows alone. For sources with LibTorch alone.
// Shapes:  inputs (n, i), outputs and the loss's gradients by them (n, o); weights (o, i).
// Cost:    per list of rows one product of (o, rows) and (rows, i) per layer, as in a pass over these rows alone; all
//          else that such a pass does is done once, for all rows.
struct LinearPass {
  layer::Linear layer;
  at::Tensor inputs;
  at::Tensor outputs;
};

// Whether all parameters of a network are those of linear layers of vectors, and no layer mixes samples.
bool is_made_of_linear_layers(const Network& network);

struct Rows {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

// The loss's gradients, by what linear layers have given.
class LinearGradients {
 public:
  // Of a loss times `share`. Frees what the backward pass goes through.
  LinearGradients(std::vector<LinearPass> passes, const at::Tensor& loss, double share);

  // By parameter, in the network's order: what these rows add to the gradient.
  std::vector<at::Tensor> of(Rows rows, std::size_t parameters) const;
  // The same added to these, without a tensor of its own for each.
  void add_to(std::vector<at::Tensor> parameters, Rows rows) const;

 private:
  std::vector<LinearPass> passes_;  // with gradients in the place of outputs
};

// One forward pass, layer by layer: what each kind of layer computes. For the sources of forward.hpp alone.
struct SequenceBatch;

class ForwardPass {
 public:
  // All arguments must live as long as the pass.
  ForwardPass(const Network& network, const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
              const at::Tensor& inputs, Mode mode, const Visits* visits)
      : network_(network), parameters_(parameters), buffers_(buffers), mode_(mode), visits_(visits), x_(inputs) {}
  // Of texts, by a network without buffers.
  ForwardPass(const Network& network, const std::vector<at::Tensor>& parameters, const SequenceBatch& texts, Mode mode,
              const Visits* visits)
      : network_(network),
        parameters_(parameters),
        buffers_(parameters),
        texts_(&texts),
        mode_(mode),
        visits_(visits) {}

  // Appends what each linear layer takes in and gives. The loss is to be differentiated by what they give.
  void record(std::vector<LinearPass>& passes) { passes_ = &passes; }

  void operator()(const layer::Flatten&);
  void operator()(const layer::Linear& layer);
  void operator()(const layer::Tanh&);
  void operator()(const layer::Relu&);
  void operator()(const layer::Silu&);
  void operator()(const layer::Gelu&);
  void operator()(const layer::Dropout& layer);

  void operator()(const layer::Convolution& layer);
  void operator()(const layer::BatchNorm& layer);
  void operator()(const layer::GroupNorm& layer);
  void operator()(const layer::MaxPool&);
  void operator()(const layer::MeanPool&);
  void operator()(const layer::ResidualBegin&);
  void operator()(const layer::ResidualEnd& layer);

  void operator()(const layer::Patches& layer);
  void operator()(const layer::Positions& layer);
  void operator()(const layer::LayerNorm& layer);
  void operator()(const layer::Attention& layer);
  void operator()(const layer::MeanTokens&);

  void operator()(const layer::BagOfWords& layer);
  void operator()(const layer::WordEmbedding& layer);
  void operator()(const layer::TextAttention& layer);
  void operator()(const layer::FirstTokens&);
  void operator()(const layer::MeanOfTexts&);
  void operator()(const layer::AskedTokens&);

  void operator()(const layer::Script& layer);

  const at::Tensor& output() const { return x_; }

 private:
  void forward_images(const layer::Script& layer);
  void forward_texts(const layer::Script& layer);
  std::vector<std::int64_t> rows_of_samples() const;
  at::Tensor parameter(int index) const {
    return index < 0 ? at::Tensor() : parameters_[static_cast<std::size_t>(index)];
  }

  const Network& network_;
  const std::vector<at::Tensor>& parameters_;
  const std::vector<at::Tensor>& buffers_;
  const SequenceBatch* texts_ = nullptr;
  Mode mode_;
  const Visits* visits_;               // null: nothing is drawn
  at::Tensor x_;                       // after the layers so far
  std::vector<at::Tensor> residuals_;  // before the branches that have begun
  std::vector<LinearPass>* passes_ = nullptr;
};

// Mixup: each sample of a micro-batch is mixed with another of it, and so are their losses.
// Source: Zhang et al. 2018, "mixup: beyond empirical risk minimization".
//   x := (1 - l) x + l x_p,  loss (1 - l) L(y) + l L(y_p),  l ~ Beta(alpha, alpha) once per micro-batch, p a
//   permutation.
//
// Both are a function of (seed, worker, step, micro-batch), since it is the micro-batch that is mixed: with other
// numbers of workers or other sizes samples meet other partners; methods of equal ones meet the same.
struct Mixture {
  float share = 0;                      // l, of the partner
  std::vector<std::uint32_t> partners;  // (B,), places in the micro-batch
};

// `alpha`: > 0.
Mixture drawn_mixture(std::uint64_t seed, const MicroBatch& micro_batch, std::size_t samples, double alpha);

// Of inputs (B, features), row by row.
void mix(const Mixture& mixture, std::span<float> inputs);

// Random numbers that LibTorch's operators draw: dropout in a module of the user's own. LibTorch has one generator for
// all threads of a process, so that what a thread gets would depend on the others.
//
// While a SeededDraws lives, all that this thread's operators draw comes from a generator of its own. No LibTorch here.
class SeededDraws {
 public:
  // Without a seed: does nothing.
  explicit SeededDraws(std::optional<std::uint64_t> seed);
  ~SeededDraws();
  SeededDraws(const SeededDraws&) = delete;
  SeededDraws& operator=(const SeededDraws&) = delete;

  // The numbers from the first one on once more.
  static void repeat();
  // How often operators of this thread have drawn while one lived.
  static std::uint64_t drawn();

 private:
  bool* are_seeded_ = nullptr;  // of this thread; null: it does nothing
};

// The seed for a micro-batch, from the counter-based streams.
std::uint64_t seed_of_draws(std::uint64_t seed, const MicroBatch& micro_batch);

}  // namespace syncopate
