// Networks, compared with independent implementations: a closed form for softmax regression, and modules of torch::nn
// in double precision for other networks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/workers/flat_gradients.hpp"
#include "tests/workers/random_images.hpp"
#include "tests/workers/reference_imagenet_resnet.hpp"
#include "tests/workers/reference_modules.hpp"
#include "tests/workers/reference_resnet.hpp"
#include "tests/workers/reference_vision_transformer.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/forward.hpp"
#include "workers/models/torch_objective.hpp"

namespace syncopate {
namespace {

using namespace reference;

TorchObjective objective_of(const Network& network) { return {network, images(), sampling, 32}; }

// Micro-batches of several workers and steps.
const std::vector<MicroBatch> micro_batches = {{.worker = Rank{0}, .step = 0, .index = 0},
                                               {.worker = Rank{0}, .step = 0, .index = 2},
                                               {.worker = Rank{1}, .step = 0, .index = 1},
                                               {.worker = Rank{1}, .step = 8, .index = 0}};

TEST(Models, GradientOfSoftmaxRegressionIsTheClosedForm) {
  const auto objective = objective_of(linear_network(shape, classes));
  const auto theta = some_parameters(objective);
  const MicroBatch micro_batch = micro_batches[2];
  const auto gradient = objective.gradient(theta.data(), nullptr, std::span(&micro_batch, 1));

  // dL/dW = mean (softmax(W x + b) - onehot(y)) x^T, and dL/db is the same without x.
  const auto samples = samples_of(micro_batch);
  std::vector<double> expected(4 * 144 + 4);
  double loss = 0;
  for (std::size_t s = 0; s < 5; ++s) {
    const float* x = samples.inputs.data() + s * 144;
    double z[4];
    double total = 0;
    for (std::size_t c = 0; c < 4; ++c) {
      z[c] = theta[4 * 144 + c];
      for (std::size_t f = 0; f < 144; ++f) z[c] += double{theta[c * 144 + f]} * x[f];
      total += std::exp(z[c]);
    }
    const auto label = static_cast<std::size_t>(samples.labels[s]);
    loss += (std::log(total) - z[label]) / 5;
    for (std::size_t c = 0; c < 4; ++c) {
      const double error = (std::exp(z[c]) / total - (c == label ? 1 : 0)) / 5;
      for (std::size_t f = 0; f < 144; ++f) expected[c * 144 + f] += error * x[f];
      expected[4 * 144 + c] += error;
    }
  }
  EXPECT_LT(relative_distance(flatten(gradient), expected), 1e-5);
  EXPECT_NEAR(gradient.loss_sum, loss, 1e-5 * loss);
}

// The reference adds the gradients of the micro-batches' mean losses one by one, with torch::nn in double precision.
TEST(Models, GradientsAgreeWithModulesInDoublePrecision) {
  for (auto& [name, network, module] : cases()) {
    SCOPED_TRACE(name);
    const auto objective = objective_of(network);
    const auto theta = some_parameters(objective);
    const auto buffers = objective.initial_buffers();
    const auto gradient = objective.gradient(theta.data(), buffers.data(), micro_batches);

    set_parameters(module, theta);
    double loss_sum = 0;
    for (const auto& micro_batch : micro_batches) {
      auto samples = samples_of(micro_batch);
      const auto loss =
          torch::nn::functional::cross_entropy(module->forward(input_tensor(samples)), label_tensor(samples));
      loss.backward();  // adds to the gradients of earlier micro-batches
      loss_sum += loss.item<double>();
    }
    std::vector<double> expected;
    for (const auto& parameter : flat_order(module)) {
      const auto values = parameter.grad().contiguous();
      expected.insert(expected.end(), values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
    }
    EXPECT_LT(relative_distance(flatten(gradient), expected), 2e-5);
    EXPECT_NEAR(gradient.loss_sum, loss_sum, 1e-5 * loss_sum);
  }
}

TEST(Models, FusedMicroBatchesGiveTheSumOfSingleOnes) {
  for (const auto& [name, network, module] : cases()) {
    SCOPED_TRACE(name);
    const auto objective = objective_of(network);
    const auto theta = some_parameters(objective);
    const auto buffers = objective.initial_buffers();
    const auto together = objective.gradient(theta.data(), buffers.data(), micro_batches);
    std::vector<double> sum(objective.parameters());
    std::vector<double> buffers_sum(objective.buffers());
    double loss_sum = 0;
    for (const auto& micro_batch : micro_batches) {
      const auto one = objective.gradient(theta.data(), buffers.data(), std::span(&micro_batch, 1));
      const auto flat = flatten(one);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += flat[i];
      for (std::size_t i = 0; i < buffers_sum.size(); ++i) buffers_sum[i] += one.buffers_sum[i];
      loss_sum += one.loss_sum;
    }
    EXPECT_LT(relative_distance(flatten(together), sum), 1e-5);
    EXPECT_NEAR(together.loss_sum, loss_sum, 1e-5 * loss_sum);
    ASSERT_EQ(together.buffers_sum.size(), buffers_sum.size());
    for (std::size_t i = 0; i < buffers_sum.size(); ++i) EXPECT_NEAR(together.buffers_sum[i], buffers_sum[i], 1e-5);
  }
}

TEST(Models, FlatVectorsHoldWeightsFirst) {
  const auto mlp = objective_of(mlp_network(shape, classes, {7, 6}));
  EXPECT_EQ(mlp.weights(), 144u * 7 + 7 * 6 + 6 * 4);
  EXPECT_EQ(mlp.parameters(), mlp.weights() + 7 + 6 + 4);
  EXPECT_EQ(mlp.buffers(), 0u);
  EXPECT_TRUE(mlp.fuses_micro_batches());
  const auto cnn = objective_of(cnn_network(shape, classes, cnn_with_batch_norm));
  EXPECT_EQ(cnn.weights(), 3u * 9 + 4 * 3 * 9 + 4 * 6 + 6 * 4);
  EXPECT_EQ(cnn.parameters(), cnn.weights() + 2 * 3 + 2 * 4 + 6 + 4);
  EXPECT_EQ(cnn.buffers(), 2u * 3 + 2 * 4);
  EXPECT_FALSE(cnn.fuses_micro_batches());
}

TEST(Models, BatchNormStatisticsMoveAsThoseOfTorch) {
  auto module = torch_cnn_with_batch_norm();
  const auto objective = objective_of(cnn_network(shape, classes, cnn_with_batch_norm));
  const auto theta = some_parameters(objective);
  const auto before = objective.initial_buffers();
  set_parameters(module, theta);
  EXPECT_EQ(before, buffers_of(module));

  // Each of two micro-batches starts from the state's statistics, and the results are summed.
  const std::span two(micro_batches.data(), 2);
  const auto sum = objective.gradient(theta.data(), before.data(), two).buffers_sum;
  std::vector<double> expected(before.size());
  for (const auto& micro_batch : two) {
    module = torch_cnn_with_batch_norm();
    set_parameters(module, theta);
    auto samples = samples_of(micro_batch);
    module->forward(input_tensor(samples));
    const auto after = buffers_of(module);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += after[i];
  }
  EXPECT_LT(relative_distance(sum, expected), 1e-5);
  EXPECT_EQ(objective.initial_buffers(), before);  // the state's own statistics do not change
}

TEST(Models, EvaluationAgreesWithModulesInDoublePrecision) {
  for (auto& [name, network, module] : cases()) {
    SCOPED_TRACE(name);
    const auto objective = objective_of(network);
    const auto theta = some_parameters(objective);
    auto buffers = objective.initial_buffers();
    for (auto& buffer : buffers) buffer += 0.25f;  // running statistics must be used, not the batch's
    // Samples 3 .. 45 are in more than one chunk of 32.
    const auto sums = objective.evaluate(theta.data(), buffers.data(), Split::test, 3, 45);

    set_parameters(module, theta);
    for (auto& buffer : module->named_buffers())
      if (buffer.key().find("running") != std::string::npos) buffer.value().add_(0.25);
    module->eval();
    Samples samples{std::vector<float>(42 * 144), std::vector<std::int64_t>(42)};
    std::vector<std::uint32_t> numbers(42);
    std::iota(numbers.begin(), numbers.end(), 3u);
    images()->gather(Split::test, numbers, samples.inputs.data(), samples.labels.data());
    const auto logits = module->forward(input_tensor(samples));
    const auto losses = torch::nn::functional::cross_entropy(
        logits, label_tensor(samples), torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
    EXPECT_NEAR(sums.loss, losses.item<double>(), 1e-5 * sums.loss);
    EXPECT_EQ(sums.correct, logits.argmax(1).eq(label_tensor(samples)).sum().item<std::int64_t>());
    EXPECT_EQ(sums.samples, 42);
  }
}

// PyTorch's scheme: uniform within 1 / sqrt(fan-in), with variance 1 / (3 fan-in).
TEST(Models, InitialParametersHaveTheDistributionOfTorch) {
  const auto objective = objective_of(mlp_network(shape, classes, {400}));
  const auto theta = objective.initial_parameters(1);
  const auto check = [&](std::size_t begin, std::size_t size, double fan_in) {
    double square = 0;
    for (std::size_t i = begin; i < begin + size; ++i) {
      EXPECT_LE(std::abs(theta[i]), 1 / std::sqrt(fan_in));
      square += double{theta[i]} * theta[i];
    }
    // x^2 has the mean bound^2 / 3 and the variance 4 / 45 bound^4. The tolerance is five standard errors.
    EXPECT_NEAR(square / static_cast<double>(size) * fan_in, 1.0 / 3,
                5 * std::sqrt(4.0 / 45 / static_cast<double>(size)));
  };
  check(0, 144 * 400, 144);              // first matrix
  check(144 * 400, 400 * 4, 400);        // second matrix
  check(144 * 400 + 400 * 4, 400, 144);  // first bias
  EXPECT_EQ(theta, objective.initial_parameters(1));
  EXPECT_NE(theta, objective.initial_parameters(2));
}

// Filters and their biases are within 1 / sqrt(channels x kernel^2). Over 20 seeds the bounds are nearly reached.
TEST(Models, InitialFiltersAndBiasesAreBoundedByTheirFanIn) {
  struct Part {
    std::size_t size;
    int fan_in;
  };
  // Images of 12 x 12 pixels become 10, 5, 3 and 1 pixels wide. Weights come before biases.
  const std::vector<Part> parts = {{8 * 9, 9}, {16 * 8 * 9, 8 * 9}, {20 * 16, 16}, {4 * 20, 20},
                                   {8, 9},     {16, 8 * 9},         {20, 16},      {4, 20}};
  const auto objective = objective_of(cnn_network(shape, classes, {.channels = {8, 16}, .kernel = 3, .dense = 20}));
  std::vector<double> largest(parts.size());
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto theta = objective.initial_parameters(seed);
    auto next = theta.begin();
    for (std::size_t p = 0; p < parts.size(); ++p)
      for (std::size_t i = 0; i < parts[p].size; ++i) largest[p] = std::max(largest[p], std::abs(double{*next++}));
    EXPECT_EQ(next, theta.end());
  }
  for (std::size_t p = 0; p < parts.size(); ++p) {
    EXPECT_LE(largest[p], 1 / std::sqrt(parts[p].fan_in)) << p;
    EXPECT_GT(largest[p], 0.9 / std::sqrt(parts[p].fan_in)) << p;
  }
}

TEST(Models, NormalisationStartsAsTheIdentity) {
  const auto objective = objective_of(cnn_network(shape, classes, cnn_with_batch_norm));
  const auto theta = objective.initial_parameters(1);
  const std::vector<float> scales_and_shifts(theta.begin() + static_cast<std::ptrdiff_t>(objective.weights()),
                                             theta.begin() + static_cast<std::ptrdiff_t>(objective.weights()) + 14);
  EXPECT_THAT(scales_and_shifts, testing::ElementsAre(1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0));
}

TEST(Models, ThreadsComputeTheSameAtOnce) {
  const auto objective = objective_of(cnn_network(shape, classes, cnn_options));
  const auto theta = some_parameters(objective);
  const auto expected = flatten(objective.gradient(theta.data(), nullptr, micro_batches));
  const auto loss = objective.evaluate(theta.data(), nullptr, Split::train, 0, 100).loss;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        EXPECT_EQ(flatten(objective.gradient(theta.data(), nullptr, micro_batches)), expected);
        EXPECT_EQ(objective.evaluate(theta.data(), nullptr, Split::train, 0, 100).loss, loss);
      }
    });
  for (auto& thread : threads) thread.join();
}

TEST(Models, GradientsOutliveTheNextCall) {
  const auto objective = objective_of(mlp_network(shape, classes, {7}));
  const auto theta = some_parameters(objective);
  const auto first = objective.gradient(theta.data(), nullptr, std::span(micro_batches.data(), 1));
  const auto values = flatten(first);
  const auto second = objective.gradient(theta.data(), nullptr, std::span(micro_batches.data() + 1, 3));
  EXPECT_EQ(flatten(first), values);
  EXPECT_NE(flatten(second), values);
}

TEST(Models, TheSmallestImageLeavesOnePixel) {
  for (const auto& options : {cnn_options, CnnOptions{}}) {
    const auto size = smallest_image(options);
    const SampleShape fits{.channels = 1, .height = size, .width = size};
    const auto network = cnn_network(fits, classes, options);
    // After the last pooling there is one pixel per channel.
    EXPECT_EQ(network.parameters()[4].shape, (std::vector<std::int64_t>{options.dense, options.channels.back()}));
  }
  EXPECT_EQ(smallest_image(CnnOptions{}), 16);  // 16 -> 12 -> 6 -> 2 -> 1
}

// ResNets and vision transformers, compared with torch::nn in double precision with the same parameters.

using Norm = ResnetOptions::Norm;
using Activation = ResnetOptions::Activation;

constexpr std::int64_t deep_classes = 4;
const SamplerOptions deep_sampling{.samples = 200, .workers = 2, .micro_batches = 3, .micro_batch_size = 5, .seed = 9};
const std::vector<MicroBatch> deep_micro_batches = {{.worker = Rank{0}, .step = 0, .index = 0},
                                                    {.worker = Rank{0}, .step = 0, .index = 2},
                                                    {.worker = Rank{1}, .step = 8, .index = 0}};

struct Case {
  std::string name;
  SampleShape shape;
  Network network;
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor(const torch::Tensor&)> forward;
  std::shared_ptr<const Dataset> images = std::make_shared<RandomImages>(shape, deep_classes, 200, 50);
  TorchObjective objective{network, images, deep_sampling, 32};
};

template <typename Module>
std::shared_ptr<Case> make_case(const std::string& name, const SampleShape& shape, const Network& network,
                                std::shared_ptr<Module> module) {
  const auto forward = [module](const torch::Tensor& x) { return module->forward(x); };
  return std::shared_ptr<Case>(
      new Case{.name = name, .shape = shape, .network = network, .module = module, .forward = forward});
}

std::shared_ptr<Case> resnet(const std::string& name, const SampleShape& shape, const ResnetOptions& options) {
  return make_case(name, shape, resnet_network(shape, deep_classes, options),
                   std::make_shared<reference::ResnetModule>(shape.channels, deep_classes, options));
}

std::shared_ptr<Case> imagenet_resnet(const std::string& name, const SampleShape& shape,
                                      const ImagenetResnetOptions& options) {
  const bool is_50 = options.depth == 50;
  const auto blocks = is_50 ? std::vector<std::int64_t>{3, 4, 6, 3} : std::vector<std::int64_t>{2, 2, 2, 2};
  return make_case(
      name, shape, imagenet_resnet_network(shape, deep_classes, options),
      std::make_shared<reference::ImagenetResnetModule>(shape.channels, deep_classes, options, blocks, is_50));
}

std::shared_ptr<Case> vision_transformer(const std::string& name, const SampleShape& shape,
                                         const VisionTransformerOptions& options) {
  return make_case(name, shape, vision_transformer_network(shape, deep_classes, options),
                   std::make_shared<reference::VisionTransformerModule>(shape, deep_classes, options));
}

std::shared_ptr<Case> cnn(const std::string& name, const SampleShape& shape) {
  using namespace torch::nn;
  const auto module = Sequential(Conv2d(shape.channels, 5, 3), ReLU(), MaxPool2d(2), Flatten(), Linear(5 * 2 * 3, 6),
                                 ReLU(), Linear(6, deep_classes));
  return make_case(name, shape, cnn_network(shape, deep_classes, {.channels = {5}, .kernel = 3, .dense = 6}),
                   module.ptr());
}

// Odd sizes, so that the last stride is cut at the border, and several channels.
std::vector<std::shared_ptr<Case>> cases() {
  const SampleShape odd{.channels = 3, .height = 9, .width = 7};
  const SampleShape wide{.channels = 2, .height = 6, .width = 9};
  return {resnet("batch", odd, {.depth = 8, .width = 6}),
          resnet("group", odd, {.depth = 14, .width = 4, .norm = Norm::group, .groups = 2}),
          resnet("group with SiLU", {.channels = 1, .height = 8, .width = 8},
                 {.depth = 8, .width = 8, .norm = Norm::group, .groups = 8, .activation = Activation::silu}),
          resnet("odd width", odd, {.depth = 8, .width = 3, .norm = Norm::group, .groups = 1}),
          imagenet_resnet("batch, ResNet-18", {.channels = 3, .height = 37, .width = 42}, {.depth = 18, .width = 3}),
          imagenet_resnet("batch, ResNet-50", {.channels = 2, .height = 33, .width = 35}, {.depth = 50, .width = 2}),
          imagenet_resnet(
              "group, ResNet-50 for small images", {.channels = 3, .height = 17, .width = 23},
              {.depth = 50, .width = 4, .stem = ImagenetResnetOptions::Stem::cifar, .norm = Norm::group, .groups = 2}),
          vision_transformer("two heads", wide,
                             {.patch = 3, .width = 8, .depth = 2, .heads = 2, .head_width = 4, .mlp_width = 12}),
          vision_transformer("narrow heads", wide,
                             {.patch = 1, .width = 12, .depth = 1, .heads = 3, .head_width = 2, .mlp_width = 5}),
          cnn("convolutions of three channels", {.channels = 3, .height = 6, .width = 9})};
}

// The parameters of a module in the order of the flat vector: matrices and filters, then the others.
std::vector<at::Tensor> deep_flat_order(const torch::nn::Module& module) {
  std::vector<at::Tensor> order;
  for (const auto& parameter : module.parameters())
    if (parameter.dim() >= 2) order.push_back(parameter);
  for (const auto& parameter : module.parameters())
    if (parameter.dim() < 2) order.push_back(parameter);
  return order;
}

void set_deep_parameters(torch::nn::Module& module, const std::vector<float>& flat) {
  module.to(torch::kDouble);
  torch::NoGradGuard no_grad;
  std::size_t offset = 0;
  for (auto& parameter : deep_flat_order(module)) {
    const auto size = static_cast<std::size_t>(parameter.numel());
    ASSERT_LE(offset + size, flat.size());
    parameter.copy_(torch::from_blob(const_cast<float*>(flat.data()) + offset, parameter.sizes(), torch::kFloat));
    offset += size;
  }
  ASSERT_EQ(offset, flat.size());
}

struct Batch {
  torch::Tensor inputs;  // in double precision
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
  std::vector<std::uint32_t> numbers;
  Sampler(deep_sampling).append_samples(micro_batch, numbers);
  return batch_of(one, Split::train, numbers);
}

TEST(DeepModels, GradientsAgreeWithModulesInDoublePrecision) {
  for (const auto& one : cases()) {
    SCOPED_TRACE(one->name);
    const auto theta = some_parameters(one->objective);
    const auto buffers = one->objective.initial_buffers();
    const auto gradient = one->objective.gradient(theta.data(), buffers.data(), deep_micro_batches);

    set_deep_parameters(*one->module, theta);
    double loss_sum = 0;
    for (const auto& micro_batch : deep_micro_batches) {
      const Batch batch = batch_of(*one, micro_batch);
      const auto loss = torch::nn::functional::cross_entropy(one->forward(batch.inputs), batch.labels);
      loss.backward();  // adds to the gradients of earlier micro-batches
      loss_sum += loss.item<double>();
    }
    std::vector<double> expected;
    for (const auto& parameter : deep_flat_order(*one->module)) {
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
    EXPECT_EQ(one->objective.fuses_micro_batches(), !one->name.starts_with("batch"));
    const auto theta = some_parameters(one->objective);
    const auto buffers = one->objective.initial_buffers();
    std::vector<double> sum(one->objective.parameters());
    for (const auto& micro_batch : deep_micro_batches) {
      const auto flat = flatten(one->objective.gradient(theta.data(), buffers.data(), std::span(&micro_batch, 1)));
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += flat[i];
    }
    const auto together = one->objective.gradient(theta.data(), buffers.data(), deep_micro_batches);
    EXPECT_LT(relative_distance(flatten(together), sum), 1e-5);
  }
}

TEST(DeepModels, EvaluationAgreesWithModulesInDoublePrecision) {
  for (const auto& one : cases()) {
    SCOPED_TRACE(one->name);
    const auto theta = some_parameters(one->objective);
    auto buffers = one->objective.initial_buffers();
    for (auto& buffer : buffers) buffer += 0.25f;  // running statistics must be used, not the batch's
    const auto sums = one->objective.evaluate(theta.data(), buffers.data(), Split::test, 3, 45);

    set_deep_parameters(*one->module, theta);
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
  const auto sum =
      one->objective.gradient(theta.data(), before.data(), std::span(&deep_micro_batches[1], 1)).buffers_sum;

  set_deep_parameters(*one->module, theta);
  one->forward(batch_of(*one, deep_micro_batches[1]).inputs);
  std::vector<double> expected;
  for (const auto& buffer : one->module->named_buffers()) {
    if (buffer.key().find("running") == std::string::npos) continue;
    const auto& values = buffer.value();
    expected.insert(expected.end(), values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
  }
  EXPECT_LT(relative_distance(sum, expected), 1e-5);
}

// ReLU overwrites its input, except if a branch also uses it.
TEST(DeepModels, ABranchLeavesItsInputAlone) {
  const auto network = Network({.channels = 1, .height = 1, .width = 2}).begin_residual().relu().end_residual();
  const auto inputs = torch::tensor({-2.0f, 3.0f}).view({1, 1, 1, 2});
  const auto outputs = forward(network, {}, {}, inputs, Mode::train);
  EXPECT_TRUE(outputs.equal(torch::tensor({-2.0f, 6.0f}).view({1, 1, 1, 2}))) << outputs;
}

// Label smoothing, compared with LibTorch's, and with cross-entropy to mixed targets.

using namespace reference;

at::Tensor logits_of(std::int64_t samples) {
  torch::manual_seed(7);
  return torch::randn({samples, 5}, torch::kDouble);
}

TEST(LabelSmoothing, IsTheCrossEntropyWithAShareOfEachLabelSpreadOverAllClasses) {
  const auto logits = logits_of(6);
  const auto labels = torch::tensor({0, 1, 2, 3, 4, 2}, torch::kLong);
  for (const double e : {0.1, 0.5, 0.9}) {
    const auto targets = (1 - e) * torch::one_hot(labels, 5).to(torch::kDouble) + e / 5;
    const auto expected = -(targets * torch::log_softmax(logits, 1)).sum().item<double>();
    const LossSums found = cross_entropy(logits, labels, e);
    EXPECT_NEAR(found.minimised.item<double>(), expected, 1e-12 * expected);
    const auto own = at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum, -100, e);
    EXPECT_NEAR(found.minimised.item<double>(), own.item<double>(), 1e-12 * expected);
  }
}

TEST(LabelSmoothing, OfNoneIsCrossEntropyAndWhatIsReportedAlwaysIs) {
  const auto logits = logits_of(4);
  const auto labels = torch::tensor({0, 4, 2, 2}, torch::kLong);
  const double plain = at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum).item<double>();
  EXPECT_EQ(cross_entropy(logits, labels, 0).minimised.item<double>(), plain);
  for (const double e : {0.0, 0.1, 0.9})
    EXPECT_NEAR(cross_entropy(logits, labels, e).reported.item<double>(), plain, 1e-12 * plain);
}

// Two fused micro-batches. The reported losses are without smoothing.
TEST(LabelSmoothing, OfAModelIsInItsGradientsAndNotInItsLosses) {
  constexpr double e = 0.3;
  const auto network = linear_network(shape, classes);
  const TorchObjective plain(network, images(), sampling, 32), smoothed(network, images(), sampling, 32, e);
  const std::vector<MicroBatch> micro_batches = {{.worker = Rank{0}, .step = 0, .index = 0},
                                                 {.worker = Rank{1}, .step = 3, .index = 1}};
  const auto theta = plain.initial_parameters(3);
  const auto gradient = smoothed.gradient(theta.data(), nullptr, micro_batches);
  EXPECT_FLOAT_EQ(static_cast<float>(gradient.loss_sum),
                  static_cast<float>(plain.gradient(theta.data(), nullptr, micro_batches).loss_sum));
  const auto test = [&](const TorchObjective& objective) {
    return objective.evaluate(theta.data(), nullptr, Split::test, 0, objective.evaluation_samples(Split::test)).loss;
  };
  EXPECT_EQ(test(smoothed), test(plain));

  auto module = torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(shape.features(), classes));
  module->to(torch::kDouble);
  set_parameters(module, theta);
  for (const auto& micro_batch : micro_batches) {
    auto samples = samples_of(micro_batch);
    at::cross_entropy_loss(module->forward(input_tensor(samples)), label_tensor(samples), {}, at::Reduction::Mean, -100,
                           e)
        .backward();
  }
  std::vector<double> expected;
  for (const auto& parameter : flat_order(module)) {
    const auto values = parameter.grad().contiguous();
    expected.insert(expected.end(), values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
  }
  std::size_t at = 0;
  for (const auto& segment : gradient.segments)
    for (std::size_t i = 0; i < segment.size; ++i, ++at) ASSERT_NEAR(segment.data[i], expected[at], 1e-5) << at;
  EXPECT_EQ(at, expected.size());
}

}  // namespace
}  // namespace syncopate
