// The tested networks as modules of torch::nn in double precision, and their data.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/workers/random_images.hpp"
#include "workers/data/sampler.hpp"
#include "workers/models/architectures.hpp"

namespace syncopate::reference {

inline constexpr SampleShape shape{.channels = 1, .height = 12, .width = 12};
inline constexpr std::int64_t classes = 4;
inline const SamplerOptions sampling{
    .samples = 200, .workers = 2, .micro_batches = 3, .micro_batch_size = 5, .seed = 9};
inline const CnnOptions cnn_options{.channels = {3, 4}, .kernel = 3, .dense = 6};
inline const CnnOptions cnn_with_batch_norm{.channels = {3, 4}, .kernel = 3, .dense = 6, .batch_norm = true};

inline std::shared_ptr<const Dataset> images() { return std::make_shared<RandomImages>(shape, classes, 200, 50); }

struct Samples {
  std::vector<float> inputs;
  std::vector<std::int64_t> labels;
};

inline Samples samples_of(const MicroBatch& micro_batch) {
  std::vector<std::uint32_t> numbers;
  Sampler(sampling).append_samples(micro_batch, numbers);
  Samples samples{std::vector<float>(5 * 144), std::vector<std::int64_t>(5)};
  images()->gather(Split::train, numbers, samples.inputs.data(), samples.labels.data());
  return samples;
}

inline at::Tensor input_tensor(Samples& samples) {
  const auto n = static_cast<std::int64_t>(samples.labels.size());
  return torch::from_blob(samples.inputs.data(), {n, 1, 12, 12}, torch::kFloat).to(torch::kDouble);
}

inline at::Tensor label_tensor(Samples& samples) {
  return torch::from_blob(samples.labels.data(), {static_cast<std::int64_t>(samples.labels.size())}, torch::kLong)
      .clone();
}

// The parameters of a module in the order of the flat vector: matrices and filters first, then all others.
inline std::vector<at::Tensor> flat_order(const torch::nn::Sequential& module) {
  std::vector<at::Tensor> order;
  for (const auto& parameter : module->parameters())
    if (parameter.dim() >= 2) order.push_back(parameter);
  for (const auto& parameter : module->parameters())
    if (parameter.dim() < 2) order.push_back(parameter);
  return order;
}

inline torch::nn::Sequential torch_mlp() {
  return torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(144, 7), torch::nn::ReLU(),
                               torch::nn::Linear(7, 6), torch::nn::ReLU(), torch::nn::Linear(6, 4));
}

inline torch::nn::Sequential torch_cnn() {
  return torch::nn::Sequential(torch::nn::Conv2d(1, 3, 3), torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                               torch::nn::Conv2d(3, 4, 3), torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                               torch::nn::Flatten(), torch::nn::Linear(4, 6), torch::nn::ReLU(),
                               torch::nn::Linear(6, 4));
}

inline torch::nn::Sequential torch_cnn_with_batch_norm() {
  const auto convolution = [](int in, int out) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).bias(false));
  };
  return torch::nn::Sequential(convolution(1, 3), torch::nn::BatchNorm2d(3), torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                               convolution(3, 4), torch::nn::BatchNorm2d(4), torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                               torch::nn::Flatten(), torch::nn::Linear(4, 6), torch::nn::ReLU(),
                               torch::nn::Linear(6, 4));
}

struct Case {
  const char* name;
  Network network;
  torch::nn::Sequential module;
};

inline std::vector<Case> cases() {
  return {{"mlp", mlp_network(shape, classes, {7, 6}), torch_mlp()},
          {"cnn", cnn_network(shape, classes, cnn_options), torch_cnn()},
          {"cnn with batch norm", cnn_network(shape, classes, cnn_with_batch_norm), torch_cnn_with_batch_norm()}};
}

// Sets the module's parameters to those of the flat vector, in double precision.
inline void set_parameters(torch::nn::Sequential& module, const std::vector<float>& flat) {
  module->to(torch::kDouble);
  torch::NoGradGuard no_grad;
  std::size_t offset = 0;
  for (auto& parameter : flat_order(module)) {
    const auto size = static_cast<std::size_t>(parameter.numel());
    ASSERT_LE(offset + size, flat.size());
    parameter.copy_(torch::tensor(std::vector<float>(flat.begin() + static_cast<std::ptrdiff_t>(offset),
                                                     flat.begin() + static_cast<std::ptrdiff_t>(offset + size)))
                        .view_as(parameter));
    offset += size;
  }
  ASSERT_EQ(offset, flat.size());
}

inline std::vector<float> buffers_of(const torch::nn::Sequential& module) {
  std::vector<float> flat;
  for (const auto& buffer : module->named_buffers()) {
    if (buffer.key().find("running") == std::string::npos) continue;
    for (std::int64_t i = 0; i < buffer.value().numel(); ++i) flat.push_back(buffer.value()[i].item<float>());
  }
  return flat;
}

}  // namespace syncopate::reference
