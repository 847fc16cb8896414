// ResNets with 6 n + 2 layers as a module of torch::nn: an independent implementation of He et al. 2016.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "workers/models/architectures.hpp"

namespace syncopate::reference {

class ResnetModule : public torch::nn::Module {
 public:
  ResnetModule(std::int64_t channels, std::int64_t classes, const ResnetOptions& options) : options_(options) {
    first_ = add(channels, options.width, 1);
    std::int64_t in = options.width;
    for (int stage = 0; stage < 3; ++stage) {
      const std::int64_t out = options.width << stage;
      for (int i = 0; i < (options.depth - 2) / 6; ++i) {
        const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
        Stack one = add(in, out, stride);
        blocks_.push_back({one, add(out, out, 1), stride});
        in = out;
      }
    }
    head_ = register_module("head", torch::nn::Linear(in, classes));
  }

  torch::Tensor forward(torch::Tensor x) {
    x = activate(apply(first_, x));
    for (Block& block : blocks_) {
      const auto branch = apply(block.second, activate(apply(block.first, x)));
      x = activate(branch + shortcut(x, branch.size(1), block.stride));
    }
    return head_(x.mean({2, 3}));
  }

 private:
  struct Stack {
    torch::nn::Conv2d convolution{nullptr};
    torch::nn::BatchNorm2d batch{nullptr};
    torch::nn::GroupNorm group{nullptr};
  };
  struct Block {
    Stack first, second;
    std::int64_t stride;
  };

  Stack add(std::int64_t in, std::int64_t out, std::int64_t stride) {
    const auto name = [this](const char* word) { return word + std::to_string(children().size()); };
    Stack stack;
    stack.convolution =
        register_module(name("convolution"),
                        torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false)));
    if (options_.norm == ResnetOptions::Norm::batch)
      stack.batch = register_module(name("norm"), torch::nn::BatchNorm2d(out));
    else
      stack.group = register_module(name("norm"), torch::nn::GroupNorm(options_.groups, out));
    return stack;
  }

  static torch::Tensor apply(Stack& stack, const torch::Tensor& x) {
    const auto y = stack.convolution(x);
    return stack.batch.is_empty() ? stack.group(y) : stack.batch(y);
  }

  torch::Tensor activate(const torch::Tensor& x) const {
    return options_.activation == ResnetOptions::Activation::silu ? torch::silu(x) : torch::relu(x);
  }

  // Option A of the paper: takes every second pixel, and adds channels of zeros, one half before and one half after.
  static torch::Tensor shortcut(torch::Tensor x, std::int64_t channels, std::int64_t stride) {
    using torch::indexing::None;
    using torch::indexing::Slice;
    if (stride == 1) return x;
    x = x.index({Slice(), Slice(), Slice(None, None, stride), Slice(None, None, stride)});
    const std::int64_t zeros = channels - x.size(1);
    const auto front = torch::zeros({x.size(0), zeros / 2, x.size(2), x.size(3)}, x.options());
    const auto back = torch::zeros({x.size(0), zeros - zeros / 2, x.size(2), x.size(3)}, x.options());
    return torch::cat({front, x, back}, 1);
  }

  ResnetOptions options_;
  Stack first_;
  std::vector<Block> blocks_;
  torch::nn::Linear head_{nullptr};
};

}  // namespace syncopate::reference
