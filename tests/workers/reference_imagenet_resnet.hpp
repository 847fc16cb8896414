// ResNets for large images as a module of torch::nn: an independent implementation of He et al. 2016 with shortcut B.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "workers/models/architectures.hpp"

namespace syncopate::reference {

class ImagenetResnetModule : public torch::nn::Module {
 public:
  using Stem = ImagenetResnetOptions::Stem;

  // `blocks`: the number of blocks in each stage.
  ImagenetResnetModule(std::int64_t channels, std::int64_t classes, const ImagenetResnetOptions& options,
                       const std::vector<std::int64_t>& blocks, bool has_bottlenecks)
      : options_(options) {
    const bool is_large = options.stem == Stem::imagenet;
    stem_ = stack(channels, options.width, is_large ? 7 : 3, is_large ? 2 : 1);
    std::int64_t in = options.width;
    for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
      const std::int64_t inner = options.width << stage, out = has_bottlenecks ? 4 * inner : inner;
      for (std::int64_t i = 0; i < blocks[stage]; ++i, in = out) {
        const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
        Block block;
        if (has_bottlenecks)
          block.stacks = {stack(in, inner, 1, 1), stack(inner, inner, 3, stride), stack(inner, out, 1, 1)};
        else
          block.stacks = {stack(in, inner, 3, stride), stack(inner, out, 3, 1)};
        if (in != out || stride != 1) block.shortcut = stack(in, out, 1, stride);
        blocks_.push_back(block);
      }
    }
    head_ = register_module("head", torch::nn::Linear(in, classes));
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(stem_->forward(x));
    if (options_.stem == Stem::imagenet) x = torch::max_pool2d(x, 3, 2, 1);
    for (Block& block : blocks_) {
      auto branch = block.stacks.front()->forward(x);
      for (std::size_t i = 1; i < block.stacks.size(); ++i) branch = block.stacks[i]->forward(torch::relu(branch));
      x = torch::relu(branch + (block.shortcut.is_empty() ? x : block.shortcut->forward(x)));
    }
    return head_(x.mean({2, 3}));
  }

 private:
  struct Block {
    std::vector<torch::nn::Sequential> stacks;
    torch::nn::Sequential shortcut{nullptr};
  };

  // A convolution and a normalisation.
  torch::nn::Sequential stack(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
    torch::nn::Sequential both(
        torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false)));
    if (options_.norm == ResnetOptions::Norm::batch)
      both->push_back(torch::nn::BatchNorm2d(out));
    else
      both->push_back(torch::nn::GroupNorm(options_.groups, out));
    return register_module("stack" + std::to_string(children().size()), both);
  }

  ImagenetResnetOptions options_;
  torch::nn::Sequential stem_{nullptr};
  std::vector<Block> blocks_;
  torch::nn::Linear head_{nullptr};
};

}  // namespace syncopate::reference
