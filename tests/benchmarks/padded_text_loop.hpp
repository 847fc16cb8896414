// A typical training loop for texts with LibTorch's encoder layers. Batches are drawn from a shuffled epoch and padded
// to their longest text. If all texts have the same length, there is no mask.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/workers/sample_tokens.hpp"
#include "workers/data/dataset.hpp"
#include "workers/models/architectures.hpp"

namespace syncopate {

// A whole split: tokens (n, longest), 0 after a text's end, lengths (n,) and labels (n,), all int64.
struct TextTensors {
  torch::Tensor tokens, lengths, labels;
  bool differ = false;  // whether lengths differ

  explicit TextTensors(const Dataset& dataset) {
    const auto n = dataset.size().train, longest = dataset.size().shape.width;
    tokens = torch::zeros({n, longest}, torch::kLong);
    lengths = torch::empty({n}, torch::kLong);
    labels = torch::empty({n}, torch::kLong);
    for (std::uint32_t i = 0; i < n; ++i) {
      const auto text = sample_tokens(dataset, Split::train, i);
      std::copy(text.begin(), text.end(), tokens.data_ptr<std::int64_t>() + i * longest);
      lengths.data_ptr<std::int64_t>()[i] = std::ssize(text);
      dataset.gather(Split::train, {&i, 1}, nullptr, labels.data_ptr<std::int64_t>() + i);
    }
    differ = lengths.min().item<std::int64_t>() < longest;
  }
};

// Classifies a text by its first token, as in BERT.
class PaddedTextTransformer : public torch::nn::Module {
 public:
  PaddedTextTransformer(std::int64_t vocabulary, std::int64_t classes, const TextTransformerOptions& options) {
    using namespace torch::nn;
    const std::int64_t d = options.width;
    words_ = register_module("words", Embedding(vocabulary, d));
    places_ = register_module("places", Embedding(options.positions, d));
    norm_ = register_module("norm", LayerNorm(LayerNormOptions({d})));
    const auto layer = TransformerEncoderLayerOptions(d, options.heads)
                           .dim_feedforward(options.mlp_width)
                           .dropout(0)
                           .activation(torch::kGELU);
    encoder_ = register_module("encoder", TransformerEncoder(TransformerEncoderOptions(layer, options.depth)));
    dense_ = register_module("dense", Linear(d, d));
    out_ = register_module("out", Linear(d, classes));
  }

  // Tokens (n, longest text), lengths (n,). If `lengths` is undefined, all texts have the same length.
  torch::Tensor forward(const torch::Tensor& tokens, const torch::Tensor& lengths) {
    const auto places = torch::arange(tokens.size(1));
    const auto padding = lengths.defined() ? places.unsqueeze(0).ge(lengths.unsqueeze(1)) : torch::Tensor();
    const auto x = norm_(words_(tokens) + places_(places)).transpose(0, 1);  // the layout of these layers
    return out_(torch::tanh(dense_(encoder_->forward(x, {}, padding)[0])));
  }

 private:
  torch::nn::Embedding words_{nullptr}, places_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::TransformerEncoder encoder_{nullptr};
  torch::nn::Linear dense_{nullptr}, out_{nullptr};
};

class PaddedTextLoop {
 public:
  PaddedTextLoop(const TextTensors& data, const DatasetSize& size, const TextTransformerOptions& options,
                 std::int64_t batch)
      : data_(data),
        batch_(batch),
        module_(size.shape.vocabulary, size.classes, options),
        optimizer_(module_.parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)) {}

  void step() {
    if (!order_.defined() || position_ + batch_ > order_.size(0)) {
      order_ = torch::randperm(data_.labels.size(0));
      position_ = 0;
    }
    const auto indices = order_.narrow(0, position_, batch_);
    position_ += batch_;
    optimizer_.zero_grad();
    torch::Tensor lengths, texts = data_.tokens;
    if (data_.differ) {
      lengths = data_.lengths.index_select(0, indices);
      texts = texts.narrow(1, 0, lengths.max().item<std::int64_t>());
    }
    const auto tokens = texts.index_select(0, indices);
    torch::nn::functional::cross_entropy(module_.forward(tokens, lengths), data_.labels.index_select(0, indices))
        .backward();
    optimizer_.step();
  }

 private:
  const TextTensors& data_;
  std::int64_t batch_;
  PaddedTextTransformer module_;
  torch::optim::SGD optimizer_;
  torch::Tensor order_;
  std::int64_t position_ = 0;
};

}  // namespace syncopate
