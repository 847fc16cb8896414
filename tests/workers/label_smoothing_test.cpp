// Label smoothing against LibTorch's own, and against cross-entropy with mixed targets.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <span>
#include <vector>

#include "tests/workers/reference_modules.hpp"
#include "workers/models/torch_objective.hpp"

namespace syncopate {
namespace {

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

// Fused micro-batches, whose losses are told without it.
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
