// The decoder-only transformer as a module of torch::nn that processes one text at a time: an independent
// implementation of GPT-2 and of its rotary variant. Heads are computed one by one, and rotary positions multiply
// complex numbers.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "workers/models/architectures.hpp"

namespace syncopate::reference {

class GptModule : public torch::nn::Module {
 public:
  using Positions = GptOptions::Positions;
  using Norm = GptOptions::Norm;

  GptModule(std::int64_t vocabulary, const GptOptions& options) : options_(options) {
    const std::int64_t d = options.width;
    words_ = matrix("words", vocabulary, d);
    if (options.positions == Positions::learned) places_ = matrix("places", options.context, d);
    for (std::int64_t i = 0; i < options.depth; ++i) {
      const std::string name = "block" + std::to_string(i) + "_";
      Block block;
      block.attention_norm = scale(name + "attention_norm");
      block.in = dense(name + "in", d, 3 * d);
      block.out = dense(name + "out", d, d);
      block.perceptron_norm = scale(name + "perceptron_norm");
      block.up = dense(name + "up", d, options.mlp_width);
      block.down = dense(name + "down", options.mlp_width, d);
      blocks_.push_back(block);
    }
    norm_ = scale("norm");
    if (!options.tied) head_ = matrix("head", vocabulary, d);
  }

  // Takes tokens (length,). Returns the logits of each next token (length, vocabulary).
  torch::Tensor forward(const torch::Tensor& tokens) const {
    auto x = words_.index_select(0, tokens);
    if (places_.defined()) x = x + places_.narrow(0, 0, tokens.size(0));
    for (const Block& block : blocks_) {
      x = x + apply(block.out, attend(apply(block.in, normalised(x, block.attention_norm))));
      const auto hidden = apply(block.up, normalised(x, block.perceptron_norm));
      x = x + apply(block.down, hidden * 0.5 * (1 + torch::erf(hidden / std::sqrt(2.0))));
    }
    return normalised(x, norm_).matmul((options_.tied ? words_ : head_).t());
  }

 private:
  struct Pair {
    torch::Tensor weight, bias;  // without biases `bias` is undefined
  };
  struct Block {
    Pair attention_norm, in, out, perceptron_norm, up, down;
  };

  torch::Tensor matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
    return register_parameter(name, torch::empty({rows, columns}));
  }
  Pair dense(const std::string& name, std::int64_t in, std::int64_t out) {
    Pair pair{.weight = matrix(name + "_weight", out, in), .bias = {}};
    if (options_.bias) pair.bias = register_parameter(name + "_bias", torch::empty({out}));
    return pair;
  }
  Pair scale(const std::string& name) {
    Pair pair{.weight = register_parameter(name + "_weight", torch::empty({options_.width})), .bias = {}};
    if (options_.bias && options_.norm == Norm::layer)
      pair.bias = register_parameter(name + "_bias", torch::empty({options_.width}));
    return pair;
  }

  static torch::Tensor apply(const Pair& dense, const torch::Tensor& x) {
    const auto y = x.matmul(dense.weight.t());
    return dense.bias.defined() ? y + dense.bias : y;
  }

  torch::Tensor normalised(const torch::Tensor& x, const Pair& scale) const {
    const auto centred = options_.norm == Norm::layer ? x - x.mean(1, true) : x;
    const auto y = centred / torch::sqrt(centred.pow(2).mean(1, true) + 1e-5) * scale.weight;
    return scale.bias.defined() ? y + scale.bias : y;
  }

  // Multiplies the complex numbers x_i + i x_{i + d / 2} by exp(i p base^(-2 i / d)) at each position p. Cosines and
  // sines are rounded to single precision, as in the tested table.
  torch::Tensor turned(const torch::Tensor& x) const {
    const std::int64_t half = x.size(1) / 2;
    const auto frequencies = torch::exp(torch::arange(half, torch::kDouble) * (-std::log(options_.rotary_base) / half));
    const auto angles = torch::outer(torch::arange(x.size(0), torch::kDouble), frequencies);
    const auto rounded = [](const torch::Tensor& values) { return values.to(torch::kFloat).to(torch::kDouble); };
    const auto turns = torch::complex(rounded(torch::cos(angles)), rounded(torch::sin(angles)));
    const auto product =
        torch::complex(x.narrow(1, 0, half).contiguous(), x.narrow(1, half, half).contiguous()) * turns;
    return torch::cat({torch::real(product), torch::imag(product)}, 1);
  }

  torch::Tensor attend(const torch::Tensor& x) const {
    const std::int64_t d = options_.width / options_.heads, length = x.size(0);
    const auto hidden = torch::ones({length, length}, torch::kBool).triu(1);
    std::vector<torch::Tensor> heads;
    for (std::int64_t head = 0; head < options_.heads; ++head) {
      auto q = x.narrow(1, head * d, d), k = x.narrow(1, options_.width + head * d, d);
      const auto v = x.narrow(1, 2 * options_.width + head * d, d);
      if (options_.positions == Positions::rotary) q = turned(q), k = turned(k);
      const auto scores = (q.matmul(k.t()) / std::sqrt(static_cast<double>(d)))
                              .masked_fill(hidden, -std::numeric_limits<double>::infinity());
      heads.push_back(torch::softmax(scores, 1).matmul(v));
    }
    return torch::cat(heads, 1);
  }

  GptOptions options_;
  torch::Tensor words_, places_, head_;
  std::vector<Block> blocks_;
  Pair norm_;
};

}  // namespace syncopate::reference
