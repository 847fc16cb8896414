// Networks against independent implementations: a closed form for softmax regression, modules of
// torch::nn in double precision for the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <numeric>
#include <thread>

#include "tests/workers/flat_gradients.hpp"
#include "tests/workers/reference_modules.hpp"
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

  // dL/dW = mean (softmax(W x + b) - onehot(y)) x^T, dL/db the same without x.
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

// The sum over micro-batches of each one's mean-loss gradient, one by one, with torch::nn in double.
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
      loss.backward();  // adds to what the micro-batches before left
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

  // Two micro-batches: each starts from the state's statistics, and the results are summed.
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
  EXPECT_EQ(objective.initial_buffers(), before);  // the state's own statistics are left alone
}

TEST(Models, EvaluationAgreesWithModulesInDoublePrecision) {
  for (auto& [name, network, module] : cases()) {
    SCOPED_TRACE(name);
    const auto objective = objective_of(network);
    const auto theta = some_parameters(objective);
    auto buffers = objective.initial_buffers();
    for (auto& buffer : buffers) buffer += 0.25f;  // running statistics, not the batch's, must be used
    // 3 .. 45 crosses chunks of 32 samples.
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

// PyTorch's scheme: uniform within 1 / sqrt(fan-in), of variance 1 / (3 fan-in).
TEST(Models, InitialParametersHaveTheDistributionOfTorch) {
  const auto objective = objective_of(mlp_network(shape, classes, {400}));
  const auto theta = objective.initial_parameters(1);
  const auto check = [&](std::size_t begin, std::size_t size, double fan_in) {
    double square = 0;
    for (std::size_t i = begin; i < begin + size; ++i) {
      EXPECT_LE(std::abs(theta[i]), 1 / std::sqrt(fan_in));
      square += double{theta[i]} * theta[i];
    }
    // The variance of x^2 is 4 / 45 of bound^4: five standard errors around the mean, bound^2 / 3.
    EXPECT_NEAR(square / static_cast<double>(size) * fan_in, 1.0 / 3,
                5 * std::sqrt(4.0 / 45 / static_cast<double>(size)));
  };
  check(0, 144 * 400, 144);              // first matrix
  check(144 * 400, 400 * 4, 400);        // second matrix
  check(144 * 400 + 400 * 4, 400, 144);  // first bias
  EXPECT_EQ(theta, objective.initial_parameters(1));
  EXPECT_NE(theta, objective.initial_parameters(2));
}

// Filters too: 1 / sqrt(channels x kernel^2) for each, and for its bias; over 20 seeds the bounds are nearly reached.
TEST(Models, InitialFiltersAndBiasesAreBoundedByTheirFanIn) {
  struct Part {
    std::size_t size;
    int fan_in;
  };
  // 12 x 12 pixels: 10, 5, 3, 1. Weights first.
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
    // The layer after the last pooling then sees one pixel per channel.
    EXPECT_EQ(network.parameters()[4].shape, (std::vector<std::int64_t>{options.dense, options.channels.back()}));
  }
  EXPECT_EQ(smallest_image(CnnOptions{}), 16);  // 16 -> 12 -> 6 -> 2 -> 1
}

}  // namespace
}  // namespace syncopate
