// ResNets and vision transformers against modules of torch::nn in double precision, with the same parameters copied in.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <string>

#include "tests/workers/flat_gradients.hpp"
#include "tests/workers/random_images.hpp"
#include "tests/workers/reference_resnet.hpp"
#include "tests/workers/reference_vision_transformer.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/forward.hpp"
#include "workers/models/torch_objective.hpp"

namespace syncopate {
namespace {

using Norm = ResnetOptions::Norm;
using Activation = ResnetOptions::Activation;

constexpr std::int64_t classes = 4;
const SamplerOptions sampling{.samples = 200, .workers = 2, .micro_batches = 3, .micro_batch_size = 5, .seed = 9};
const std::vector<MicroBatch> micro_batches = {{.worker = Rank{0}, .step = 0, .index = 0},
                                               {.worker = Rank{0}, .step = 0, .index = 2},
                                               {.worker = Rank{1}, .step = 8, .index = 0}};

struct Case {
  std::string name;
  SampleShape shape;
  Network network;
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor(const torch::Tensor&)> forward;
  std::shared_ptr<const Dataset> images = std::make_shared<RandomImages>(shape, classes, 200, 50);
  TorchObjective objective{network, images, sampling, 32};
};

template <typename Module>
std::shared_ptr<Case> make_case(const std::string& name, const SampleShape& shape, const Network& network,
                                std::shared_ptr<Module> module) {
  const auto forward = [module](const torch::Tensor& x) { return module->forward(x); };
  return std::shared_ptr<Case>(
      new Case{.name = name, .shape = shape, .network = network, .module = module, .forward = forward});
}

std::shared_ptr<Case> resnet(const std::string& name, const SampleShape& shape, const ResnetOptions& options) {
  return make_case(name, shape, resnet_network(shape, classes, options),
                   std::make_shared<reference::ResnetModule>(shape.channels, classes, options));
}

std::shared_ptr<Case> vision_transformer(const std::string& name, const SampleShape& shape,
                                         const VisionTransformerOptions& options) {
  return make_case(name, shape, vision_transformer_network(shape, classes, options),
                   std::make_shared<reference::VisionTransformerModule>(shape, classes, options));
}

std::shared_ptr<Case> cnn(const std::string& name, const SampleShape& shape) {
  using namespace torch::nn;
  const auto module = Sequential(Conv2d(shape.channels, 5, 3), ReLU(), MaxPool2d(2), Flatten(), Linear(5 * 2 * 3, 6),
                                 ReLU(), Linear(6, classes));
  return make_case(name, shape, cnn_network(shape, classes, {.channels = {5}, .kernel = 3, .dense = 6}), module.ptr());
}

// Odd sizes, so that strides leave a half pixel; several channels.
std::vector<std::shared_ptr<Case>> cases() {
  const SampleShape odd{.channels = 3, .height = 9, .width = 7};
  const SampleShape wide{.channels = 2, .height = 6, .width = 9};
  return {resnet("batch", odd, {.depth = 8, .width = 6}),
          resnet("group", odd, {.depth = 14, .width = 4, .norm = Norm::group, .groups = 2}),
          resnet("group with SiLU", {.channels = 1, .height = 8, .width = 8},
                 {.depth = 8, .width = 8, .norm = Norm::group, .groups = 8, .activation = Activation::silu}),
          resnet("odd width", odd, {.depth = 8, .width = 3, .norm = Norm::group, .groups = 1}),
          vision_transformer("two heads", wide,
                             {.patch = 3, .width = 8, .depth = 2, .heads = 2, .head_width = 4, .mlp_width = 12}),
          vision_transformer("narrow heads", wide,
                             {.patch = 1, .width = 12, .depth = 1, .heads = 3, .head_width = 2, .mlp_width = 5}),
          cnn("convolutions of three channels", {.channels = 3, .height = 6, .width = 9})};
}

// The parameters of a module in the order of the flat vector: matrices and filters, then the others.
std::vector<at::Tensor> flat_order(const torch::nn::Module& module) {
  std::vector<at::Tensor> order;
  for (const auto& parameter : module.parameters())
    if (parameter.dim() >= 2) order.push_back(parameter);
  for (const auto& parameter : module.parameters())
    if (parameter.dim() < 2) order.push_back(parameter);
  return order;
}

void set_parameters(torch::nn::Module& module, const std::vector<float>& flat) {
  module.to(torch::kDouble);
  torch::NoGradGuard no_grad;
  std::size_t offset = 0;
  for (auto& parameter : flat_order(module)) {
    const auto size = static_cast<std::size_t>(parameter.numel());
    ASSERT_LE(offset + size, flat.size());
    parameter.copy_(torch::from_blob(const_cast<float*>(flat.data()) + offset, parameter.sizes(), torch::kFloat));
    offset += size;
  }
  ASSERT_EQ(offset, flat.size());
}

struct Batch {
  torch::Tensor inputs;  // double
  torch::Tensor labels;
};

Batch batch_of(const Case& one, Split split, const std::vector<std::uint32_t>& numbers) {
  const auto n = static_cast<std::int64_t>(numbers.size());
  const auto inputs = torch::empty({n, one.shape.channels, one.shape.height, one.shape.width});
  Batch batch{.inputs = {}, .labels = torch::empty({n}, torch::kLong)};
  one.images->gather(split, numbers, inputs.data_ptr<float>(), batch.labels.data_ptr<std::int64_t>());
  batch.inputs = inputs.to(torch::kDouble);
  return batch;
}

Batch batch_of(const Case& one, const MicroBatch& micro_batch) {
  std::vector<std::uint32_t> numbers(5);
  Sampler(sampling).sample_numbers(micro_batch, numbers);
  return batch_of(one, Split::train, numbers);
}

TEST(DeepModels, GradientsAgreeWithModulesInDoublePrecision) {
  for (const auto& one : cases()) {
    SCOPED_TRACE(one->name);
    const auto theta = some_parameters(one->objective);
    const auto buffers = one->objective.initial_buffers();
    const auto gradient = one->objective.gradient(theta.data(), buffers.data(), micro_batches);

    set_parameters(*one->module, theta);
    double loss_sum = 0;
    for (const auto& micro_batch : micro_batches) {
      const Batch batch = batch_of(*one, micro_batch);
      const auto loss = torch::nn::functional::cross_entropy(one->forward(batch.inputs), batch.labels);
      loss.backward();  // adds to what the micro-batches before left
      loss_sum += loss.item<double>();
    }
    std::vector<double> expected;
    for (const auto& parameter : flat_order(*one->module)) {
      const auto values = parameter.grad().contiguous();
      expected.insert(expected.end(), values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
    }
    EXPECT_LT(relative_distance(flatten(gradient), expected), 2e-5);
    EXPECT_NEAR(gradient.loss_sum, loss_sum, 1e-5 * loss_sum);
  }
}

TEST(DeepModels, FusedMicroBatchesGiveTheSumOfSingleOnes) {
  for (const auto& one : cases()) {
    SCOPED_TRACE(one->name);
    EXPECT_EQ(one->objective.fuses_micro_batches(), one->name != "batch");
    const auto theta = some_parameters(one->objective);
    const auto buffers = one->objective.initial_buffers();
    std::vector<double> sum(one->objective.parameters());
    for (const auto& micro_batch : micro_batches) {
      const auto flat = flatten(one->objective.gradient(theta.data(), buffers.data(), std::span(&micro_batch, 1)));
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += flat[i];
    }
    const auto together = one->objective.gradient(theta.data(), buffers.data(), micro_batches);
    EXPECT_LT(relative_distance(flatten(together), sum), 1e-5);
  }
}

TEST(DeepModels, EvaluationAgreesWithModulesInDoublePrecision) {
  for (const auto& one : cases()) {
    SCOPED_TRACE(one->name);
    const auto theta = some_parameters(one->objective);
    auto buffers = one->objective.initial_buffers();
    for (auto& buffer : buffers) buffer += 0.25f;  // running statistics, not the batch's, must be used
    const auto sums = one->objective.evaluate(theta.data(), buffers.data(), Split::test, 3, 45);

    set_parameters(*one->module, theta);
    for (auto& buffer : one->module->named_buffers())
      if (buffer.key().find("running") != std::string::npos) buffer.value().add_(0.25);
    one->module->eval();
    std::vector<std::uint32_t> numbers;
    for (std::uint32_t i = 3; i < 45; ++i) numbers.push_back(i);
    const Batch batch = batch_of(*one, Split::test, numbers);
    const auto logits = one->forward(batch.inputs);
    const auto options = torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum);
    EXPECT_NEAR(sums.loss, torch::nn::functional::cross_entropy(logits, batch.labels, options).item<double>(),
                1e-5 * sums.loss);
    EXPECT_EQ(sums.correct, logits.argmax(1).eq(batch.labels).sum().item<std::int64_t>());
  }
}

TEST(DeepModels, BatchStatisticsMoveAsThoseOfTorch) {
  const auto one = cases().front();
  ASSERT_GT(one->objective.buffers(), 0u);
  const auto theta = some_parameters(one->objective);
  const auto before = one->objective.initial_buffers();
  const auto sum = one->objective.gradient(theta.data(), before.data(), std::span(&micro_batches[1], 1)).buffers_sum;

  set_parameters(*one->module, theta);
  one->forward(batch_of(*one, micro_batches[1]).inputs);
  std::vector<double> expected;
  for (const auto& buffer : one->module->named_buffers()) {
    if (buffer.key().find("running") == std::string::npos) continue;
    const auto& values = buffer.value();
    expected.insert(expected.end(), values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
  }
  EXPECT_LT(relative_distance(sum, expected), 1e-5);
}

// ReLU works in place, on everything but what a branch goes around.
TEST(DeepModels, ABranchLeavesItsInputAlone) {
  const auto network = Network({.channels = 1, .height = 1, .width = 2}).begin_residual().relu().end_residual();
  const auto inputs = torch::tensor({-2.0f, 3.0f}).view({1, 1, 1, 2});
  const auto outputs = forward(network, {}, {}, inputs, Mode::train);
  EXPECT_TRUE(outputs.equal(torch::tensor({-2.0f, 6.0f}).view({1, 1, 1, 2}))) << outputs;
}

}  // namespace
}  // namespace syncopate
