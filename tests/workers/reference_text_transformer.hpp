// The text transformer from modules of torch::nn that process one text at a time. A transformer that normalises sums
// has LibTorch's encoder layers; one that normalises branches has only LibTorch's attention.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "workers/models/architectures.hpp"

namespace syncopate::reference {

class TextTransformerModule : public torch::nn::Module {
 public:
  using Kind = TextTask::Kind;
  using Norm = TextTransformerOptions::Norm;

  TextTransformerModule(std::int64_t vocabulary, std::int64_t classes, const TextTransformerOptions& options)
      : options_(options) {
    const std::int64_t d = options.width;
    words_ = add("words", torch::nn::Embedding(vocabulary, d));
    places_ = add("places", torch::nn::Embedding(options.positions, d));
    norm_ = add("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({d})));
    for (std::int64_t i = 0; i < options.depth; ++i)
      blocks_.push_back(add("block" + std::to_string(i), torch::nn::TransformerEncoderLayer(
                                                             torch::nn::TransformerEncoderLayerOptions(d, options.heads)
                                                                 .dim_feedforward(options.mlp_width)
                                                                 .dropout(0)
                                                                 .activation(torch::kGELU))));
    if (options.task.kind == Kind::classification) {
      if (options.pooling == TextTransformerOptions::Pooling::first) dense_ = add("dense", torch::nn::Linear(d, d));
      decoder_ = add("decoder", torch::nn::Linear(d, classes));
    }
    if (options.task.kind == Kind::masked_lm) {
      dense_ = add("dense", torch::nn::Linear(d, d));
      head_norm_ = add("head_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({d})));
      bias_ = register_parameter("bias", torch::empty({vocabulary}));
    }
  }

  // Takes tokens (1, length). Returns logits: (1, classes), or (places, vocabulary) for these places.
  torch::Tensor forward(const torch::Tensor& tokens, const std::vector<std::int64_t>& places = {}) {
    const auto length = tokens.size(1);
    auto x = words_(tokens[0]) + places_(torch::arange(length));
    if (options_.norm == Norm::after) x = norm_(x);
    x = x.unsqueeze(1);  // (length, 1, width), the layout of these modules
    torch::Tensor mask;
    if (options_.task.kind == Kind::causal_lm)
      mask = torch::full({length, length}, -std::numeric_limits<double>::infinity(), torch::kDouble).triu(1);
    for (auto& block : blocks_) x = options_.norm == Norm::after ? block(x, mask) : pre_norm(block, x, mask);
    x = x.squeeze(1);
    if (options_.norm == Norm::before) x = norm_(x);
    if (options_.task.kind == Kind::classification) {
      if (dense_) return decoder_(torch::tanh(dense_(x.narrow(0, 0, 1))));
      return decoder_(x.mean(0, true));
    }
    x = x.index_select(0, torch::tensor(places));
    if (options_.task.kind == Kind::causal_lm) return x.matmul(words_->weight.t());
    return torch::addmm(bias_, head_norm_(torch::gelu(dense_(x))), words_->weight.t());
  }

  // The parameters in the order of the layers.
  std::vector<torch::Tensor> parameters_by_layer() const {
    std::vector<torch::Tensor> order = {words_->weight, places_->weight};
    const auto append = [&](std::initializer_list<torch::Tensor> more) {
      order.insert(order.end(), more.begin(), more.end());
    };
    if (options_.norm == Norm::after) append({norm_->weight, norm_->bias});
    for (const auto& block : blocks_) {
      const auto& attention = block->self_attn;
      if (options_.norm == Norm::before) append({block->norm1->weight, block->norm1->bias});
      append(
          {attention->in_proj_weight, attention->in_proj_bias, attention->out_proj->weight, attention->out_proj->bias});
      if (options_.norm == Norm::after) append({block->norm1->weight, block->norm1->bias});
      if (options_.norm == Norm::before) append({block->norm2->weight, block->norm2->bias});
      append({block->linear1->weight, block->linear1->bias, block->linear2->weight, block->linear2->bias});
      if (options_.norm == Norm::after) append({block->norm2->weight, block->norm2->bias});
    }
    if (options_.norm == Norm::before) append({norm_->weight, norm_->bias});
    if (dense_) append({dense_->weight, dense_->bias});
    if (head_norm_) append({head_norm_->weight, head_norm_->bias});
    if (decoder_) append({decoder_->weight, decoder_->bias});
    if (bias_.defined()) append({bias_});
    return order;
  }

 private:
  template <typename Module>
  Module add(const std::string& name, Module module) {
    return register_module(name, module);
  }

  static torch::Tensor pre_norm(torch::nn::TransformerEncoderLayer& block, torch::Tensor x, const torch::Tensor& mask) {
    const auto normalised = block->norm1(x);
    x = x + std::get<0>(block->self_attn(normalised, normalised, normalised, /*key_padding_mask=*/torch::Tensor(),
                                         /*need_weights=*/false, mask));
    return x + block->linear2(torch::gelu(block->linear1(block->norm2(x))));
  }

  TextTransformerOptions options_;
  torch::nn::Embedding words_{nullptr}, places_{nullptr};
  torch::nn::LayerNorm norm_{nullptr}, head_norm_{nullptr};
  std::vector<torch::nn::TransformerEncoderLayer> blocks_;
  torch::nn::Linear dense_{nullptr}, decoder_{nullptr};
  torch::Tensor bias_;
};

}  // namespace syncopate::reference
