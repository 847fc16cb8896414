// One forward pass, layer by layer: what each kind of layer computes. For the sources of forward.hpp alone.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <vector>

#include "workers/models/forward.hpp"
#include "workers/models/linear_passes.hpp"

namespace syncopate {

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

}  // namespace syncopate
