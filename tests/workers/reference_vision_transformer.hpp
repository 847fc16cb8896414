// The simple vision transformer as a module of torch::nn: an independent implementation, which cuts patches by
// unfolding and computes attention by torch::einsum.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <vector>

#include "workers/models/architectures.hpp"

namespace syncopate::reference {

class VisionTransformerModule : public torch::nn::Module {
 public:
  VisionTransformerModule(const SampleShape& image, std::int64_t classes, const VisionTransformerOptions& options)
      : options_(options) {
    const std::int64_t pixels = options.patch * options.patch * image.channels;
    const std::int64_t d = options.width, inner = options.heads * options.head_width;
    patch_norm_ = norm(pixels);
    embed_ = linear(pixels, d, true);
    embed_norm_ = norm(d);
    for (int i = 0; i < options.depth; ++i) {
      Block block;
      block.attention_norm = norm(d);
      block.parts = linear(d, 3 * inner, false);
      block.out = linear(inner, d, false);
      block.norm = norm(d);
      block.up = linear(d, options.mlp_width, true);
      block.down = linear(options.mlp_width, d, true);
      blocks_.push_back(block);
    }
    head_norm_ = norm(d);
    head_ = linear(d, classes, true);
    positions_ = register_buffer("positions", positions(image.height / options.patch, image.width / options.patch, d));
  }

  torch::Tensor forward(const torch::Tensor& image) {
    auto x = embed_norm_(embed_(patch_norm_(patches(image)))) + positions_;
    for (Block& block : blocks_) {
      x = x + block.out(attend(block.parts(block.attention_norm(x))));
      x = x + block.down(torch::gelu(block.up(block.norm(x))));
    }
    return head_(head_norm_(x.mean(1)));
  }

 private:
  struct Block {
    torch::nn::LayerNorm attention_norm{nullptr}, norm{nullptr};
    torch::nn::Linear parts{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};
  };

  torch::nn::LayerNorm norm(std::int64_t d) {
    return register_module("norm" + std::to_string(children().size()),
                           torch::nn::LayerNorm(torch::nn::LayerNormOptions({d})));
  }
  torch::nn::Linear linear(std::int64_t in, std::int64_t out, bool bias) {
    return register_module("linear" + std::to_string(children().size()),
                           torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(bias)));
  }

  // The result is (n, patches, pixels x channels): within a patch the channels of a pixel are adjacent.
  torch::Tensor patches(const torch::Tensor& image) const {
    const std::int64_t p = options_.patch;
    const auto grid = image.unfold(2, p, p).unfold(3, p, p);  // (n, c, rows, columns, p, p)
    return grid.permute({0, 2, 3, 4, 5, 1}).flatten(3).flatten(1, 2);
  }

  torch::Tensor attend(const torch::Tensor& parts) const {
    const auto chunks = parts.chunk(3, -1);
    const auto heads = [&](const torch::Tensor& x) {
      return x.reshape({x.size(0), x.size(1), options_.heads, options_.head_width});
    };
    const auto q = heads(chunks[0]), k = heads(chunks[1]), v = heads(chunks[2]);  // (n, t, h, d)
    const auto scores = torch::einsum("bihd,bjhd->bhij", {q, k}) / std::sqrt(double(options_.head_width));
    return torch::einsum("bhij,bjhd->bihd", {torch::softmax(scores, -1), v}).flatten(2);
  }

  static torch::Tensor positions(std::int64_t rows, std::int64_t columns, std::int64_t d) {
    const auto in_double = torch::TensorOptions(torch::kDouble);
    const auto grid = torch::meshgrid({torch::arange(rows, in_double), torch::arange(columns, in_double)}, "ij");
    const auto omega = torch::pow(10000.0, -torch::arange(d / 4, in_double) / (double(d) / 4 - 1));
    const auto y = grid[0].flatten().outer(omega), x = grid[1].flatten().outer(omega);
    return torch::cat({x.sin(), x.cos(), y.sin(), y.cos()}, 1).to(torch::kFloat);
  }

  VisionTransformerOptions options_;
  torch::nn::LayerNorm patch_norm_{nullptr}, embed_norm_{nullptr}, head_norm_{nullptr};
  torch::nn::Linear embed_{nullptr}, head_{nullptr};
  std::vector<Block> blocks_;
  torch::Tensor positions_;
};

}  // namespace syncopate::reference
