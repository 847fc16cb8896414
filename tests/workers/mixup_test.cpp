// Mixup: the law of shares and partners, what is mixed, and gradients against a reference in double precision.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "tests/workers/reference_modules.hpp"
#include "workers/models/forward.hpp"
#include "workers/models/torch_objective.hpp"

namespace syncopate {
namespace {

using namespace reference;

MicroBatch numbered(int i) { return {.worker = Rank{i % 7}, .step = i / 7, .index = i % 3}; }

// Beta(a, a) has mean 1/2 and variance 1 / (4 (2 a + 1)).
TEST(Mixup, SharesAreBetas) {
  constexpr int draws = 20000;
  for (const double alpha : {0.2, 1.0, 4.0}) {
    double sum = 0, squares = 0;
    for (int i = 0; i < draws; ++i) {
      const double share = drawn_mixture(5, numbered(i), 4, alpha).share;
      ASSERT_GE(share, 0);
      ASSERT_LE(share, 1);
      sum += share;
      squares += (share - 0.5) * (share - 0.5);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(sum / draws, 0.5, 5 * std::sqrt(variance / draws));
    EXPECT_NEAR(squares / draws, variance, 0.03 * variance);
  }
}

TEST(Mixup, OfExtremeParametersIsANumber) {
  for (const double alpha : {1e-3, 1e3})
    for (int i = 0; i < 300; ++i) {
      const float share = drawn_mixture(1, numbered(i), 2, alpha).share;
      EXPECT_TRUE(share >= 0 && share <= 1) << share;
    }
}

TEST(Mixup, PartnersAreAPermutationThatEachMicroBatchDraws) {
  std::set<std::vector<std::uint32_t>> seen;
  std::vector<int> first(5);
  for (int i = 0; i < 1050; ++i) {
    const Mixture mixture = drawn_mixture(9, numbered(i), 5, 0.2);
    auto sorted = mixture.partners;
    std::ranges::sort(sorted);
    EXPECT_EQ(sorted, (std::vector<std::uint32_t>{0, 1, 2, 3, 4}));
    seen.insert(mixture.partners);
    ++first[mixture.partners[0]];
  }
  EXPECT_EQ(seen.size(), 120u);
  for (const int count : first) EXPECT_NEAR(count, 210, 5 * 13);
  const Mixture a = drawn_mixture(9, numbered(1), 5, 0.2), b = drawn_mixture(9, numbered(1), 5, 0.2);
  EXPECT_EQ(a.share, b.share);
  EXPECT_EQ(a.partners, b.partners);
  EXPECT_NE(a.share, drawn_mixture(10, numbered(1), 5, 0.2).share);
  EXPECT_NE(a.share, drawn_mixture(9, numbered(2), 5, 0.2).share);
}

TEST(Mixup, MixesEachSampleWithItsPartnerAsItWas) {
  std::vector<float> inputs = {0, 8, 100, 108, 200, 208};
  mix({.share = 0.25f, .partners = {1, 2, 0}}, inputs);
  EXPECT_EQ(inputs, (std::vector<float>{25, 33, 125, 133, 150, 158}));
}

TEST(Mixup, LossIsThatOfMixedTargets) {
  torch::manual_seed(3);
  const auto logits = torch::randn({4, 5}, torch::kDouble);
  const auto labels = torch::tensor({0, 4, 2, 2}, torch::kLong), others = torch::tensor({1, 4, 0, 3}, torch::kLong);
  const auto shares = torch::tensor({0.1, 0.9, 0.4, 0.0}, torch::kDouble);
  const MixedLabels mixed{.labels = others, .shares = shares};
  const auto hot = [](const at::Tensor& of) { return torch::one_hot(of, 5).to(torch::kDouble); };
  const auto column = shares.unsqueeze(1);
  const auto log_probabilities = torch::log_softmax(logits, 1);
  for (const double e : {0.0, 0.2}) {
    const auto targets = (1 - column) * hot(labels) + column * hot(others);
    const auto smooth = (1 - e) * targets + e / 5;
    const LossSums found = cross_entropy(logits, labels, e, &mixed);
    EXPECT_NEAR(found.minimised.item<double>(), -(smooth * log_probabilities).sum().item<double>(), 1e-12);
    EXPECT_NEAR(found.reported.item<double>(), -(targets * log_probabilities).sum().item<double>(), 1e-12);
  }
}

// Of fused micro-batches, each mixed within itself.
TEST(Mixup, GradientsAreThoseOfMixedSamples) {
  constexpr double alpha = 0.7;
  const TorchObjective objective(linear_network(shape, classes), images(), sampling, 32, 0, alpha);
  const std::vector<MicroBatch> micro_batches = {{.worker = Rank{0}, .step = 0, .index = 0},
                                                 {.worker = Rank{1}, .step = 3, .index = 1}};
  const auto theta = objective.initial_parameters(3);
  const auto gradient = objective.gradient(theta.data(), nullptr, micro_batches);

  auto module = torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(shape.features(), classes));
  module->to(torch::kDouble);
  set_parameters(module, theta);
  double loss_sum = 0;
  for (const auto& micro_batch : micro_batches) {
    const Mixture mixture = drawn_mixture(sampling.seed, micro_batch, 5, alpha);
    auto samples = samples_of(micro_batch);
    const auto x = input_tensor(samples);
    const auto order = torch::tensor(std::vector<std::int64_t>(mixture.partners.begin(), mixture.partners.end()));
    const auto labels = label_tensor(samples);
    const auto logits = module->forward((1 - mixture.share) * x + mixture.share * x.index_select(0, order));
    const auto loss = (1 - mixture.share) * torch::nn::functional::cross_entropy(logits, labels) +
                      mixture.share * torch::nn::functional::cross_entropy(logits, labels.index_select(0, order));
    loss.backward();
    loss_sum += loss.item<double>();
  }
  EXPECT_NEAR(gradient.loss_sum, loss_sum, 1e-5);
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

TEST(Mixup, LeavesEvaluationsAlone) {
  const auto network = linear_network(shape, classes);
  const TorchObjective plain(network, images(), sampling, 32), mixed(network, images(), sampling, 32, 0, 0.2);
  const auto theta = plain.initial_parameters(3);
  for (const Split split : {Split::train, Split::test})
    EXPECT_EQ(plain.evaluate(theta.data(), nullptr, split, 0, 50).loss,
              mixed.evaluate(theta.data(), nullptr, split, 0, 50).loss);
}

}  // namespace
}  // namespace syncopate
