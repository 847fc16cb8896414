#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "workers/models/architectures.hpp"

namespace syncopate {
namespace {

constexpr QuadraticOptions exact{.dimension = 5, .condition = 16, .noise = 0};
constexpr QuadraticOptions noisy{.dimension = 5, .condition = 16, .noise = 0.5};

std::vector<float> gradient_at(const Quadratic& objective, const std::vector<float>& theta,
                               std::span<const MicroBatch> micro_batches) {
  const auto gradient = objective.gradient(theta.data(), nullptr, micro_batches);
  EXPECT_EQ(gradient.segments.size(), 1u);
  const auto& segment = gradient.segments.front();
  return {segment.data, segment.data + segment.size};
}

TEST(Quadratic, CurvaturesAreLogSpacedUpToOne) {
  const Quadratic objective(exact, 1);
  EXPECT_THAT(objective.curvatures(),
              testing::Pointwise(testing::DoubleNear(1e-15), {1 / 16.0, 1 / 8.0, 1 / 4.0, 1 / 2.0, 1.0}));
  EXPECT_THAT(Quadratic({.dimension = 1, .condition = 9}, 1).curvatures(), testing::ElementsAre(1.0));
}

TEST(Quadratic, WithoutNoiseTheGradientIsTheClosedForm) {
  const Quadratic objective(exact, 1);
  const auto theta = objective.initial_parameters(2);
  const std::vector<MicroBatch> three(3);
  const auto gradient = gradient_at(objective, theta, three);
  double loss = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    const double distance = theta[i] - objective.optimum()[i];
    EXPECT_NEAR(gradient[i], 3 * objective.curvatures()[i] * distance, 1e-6);
    loss += objective.curvatures()[i] * distance * distance / 2;
  }
  EXPECT_NEAR(objective.gradient(theta.data(), nullptr, three).loss_sum, 3 * loss, 1e-12);
  EXPECT_NEAR(objective.evaluate(theta.data(), nullptr, Split::test, 0, 1).loss, loss, 1e-12);
}

TEST(Quadratic, TheOptimumHasNoLossAndNoGradient) {
  const Quadratic objective(exact, 1);
  const std::vector<float> optimum(objective.optimum().begin(), objective.optimum().end());
  EXPECT_NEAR(objective.evaluate(optimum.data(), nullptr, Split::train, 0, 1).loss, 0, 1e-12);
  const MicroBatch micro_batch;
  EXPECT_THAT(gradient_at(objective, optimum, std::span(&micro_batch, 1)), testing::Each(testing::FloatNear(0, 1e-6)));
}

TEST(Quadratic, NoiseHasTheDeclaredDeviationAndIsIndependent) {
  const Quadratic objective(noisy, 1);
  const Quadratic truth(exact, 1);
  const auto theta = objective.initial_parameters(2);
  const MicroBatch any;
  const auto mean = gradient_at(truth, theta, std::span(&any, 1));
  double sum = 0;
  double square = 0;
  double neighbours = 0;     // between coordinates
  double micro_batches = 0;  // between consecutive micro-batches
  std::vector<double> before(5);
  constexpr int draws = 4000;
  for (int n = 0; n < draws; ++n) {
    const MicroBatch micro_batch{.worker = Rank{n % 5}, .step = n / 20, .index = n / 5 % 4};
    const auto gradient = gradient_at(objective, theta, std::span(&micro_batch, 1));
    std::vector<double> z(5);
    for (std::size_t i = 0; i < 5; ++i) {
      z[i] = (gradient[i] - mean[i]) / 0.5;
      sum += z[i];
      square += z[i] * z[i];
      if (i > 0) neighbours += z[i] * z[i - 1];
      micro_batches += z[i] * before[i];
    }
    before = z;
  }
  // 20,000 standard normal numbers: five standard errors each.
  EXPECT_NEAR(sum / (5 * draws), 0, 5 / std::sqrt(5.0 * draws));
  EXPECT_NEAR(square / (5 * draws), 1, 5 * std::sqrt(2 / (5.0 * draws)));
  EXPECT_NEAR(neighbours / (4 * draws), 0, 5 / std::sqrt(4.0 * draws));
  EXPECT_NEAR(micro_batches / (5 * draws), 0, 5 / std::sqrt(5.0 * draws));
}

TEST(Quadratic, NoiseIsAPureFunctionOfTheMicroBatch) {
  const Quadratic objective(noisy, 1);
  const auto theta = objective.initial_parameters(2);
  const auto at = [&](const MicroBatch& micro_batch) {
    return gradient_at(objective, theta, std::span(&micro_batch, 1));
  };
  const MicroBatch first{.worker = Rank{3}, .step = 7, .index = 2};
  EXPECT_EQ(at(first), at(first));
  EXPECT_EQ(at(first), gradient_at(Quadratic(noisy, 1), theta, std::span(&first, 1)));
  EXPECT_NE(at(first), at({.worker = Rank{2}, .step = 7, .index = 2}));
  EXPECT_NE(at(first), at({.worker = Rank{3}, .step = 8, .index = 2}));
  EXPECT_NE(at(first), at({.worker = Rank{3}, .step = 7, .index = 1}));
}

TEST(Quadratic, ASumOfMicroBatchesIsTheSumOfTheirGradients) {
  const Quadratic objective(noisy, 1);
  const auto theta = objective.initial_parameters(2);
  const std::vector<MicroBatch> three = {{.index = 0}, {.index = 1}, {.worker = Rank{1}, .step = 4, .index = 0}};
  std::vector<double> sum(5);
  double loss_sum = 0;
  for (const auto& micro_batch : three) {
    const auto one = gradient_at(objective, theta, std::span(&micro_batch, 1));
    for (std::size_t i = 0; i < 5; ++i) sum[i] += one[i];
    loss_sum += objective.gradient(theta.data(), nullptr, std::span(&micro_batch, 1)).loss_sum;
  }
  EXPECT_THAT(gradient_at(objective, theta, three), testing::Pointwise(testing::FloatNear(1e-5f), sum));
  EXPECT_NEAR(objective.gradient(theta.data(), nullptr, three).loss_sum, loss_sum, 1e-9);
}

// The loss of a quadratic is a parabola along any line, so the central difference is exact.
TEST(Quadratic, TheNoisyLossHasTheNoisyGradient) {
  const Quadratic objective(noisy, 1);
  const auto theta = objective.initial_parameters(2);
  const MicroBatch micro_batch{.worker = Rank{1}, .step = 3, .index = 1};
  const auto gradient = gradient_at(objective, theta, std::span(&micro_batch, 1));
  for (std::size_t i = 0; i < 5; ++i) {
    const auto loss_at = [&](float shift) {
      auto moved = theta;
      moved[i] += shift;
      return objective.gradient(moved.data(), nullptr, std::span(&micro_batch, 1)).loss_sum;
    };
    EXPECT_NEAR((loss_at(0.5f) - loss_at(-0.5f)), gradient[i], 1e-5);
  }
}

TEST(Quadratic, HasNoDataAndNoAccuracy) {
  const Quadratic objective(exact, 1);
  EXPECT_FALSE(objective.has_accuracy());
  EXPECT_EQ(objective.steps_per_epoch(), 0);
  EXPECT_EQ(objective.samples_per_micro_batch(), 1);
  EXPECT_EQ(objective.parameters(), 5u);
}

TEST(Quadratic, SeedsGiveOtherOptimaAndStarts) {
  EXPECT_NE(Quadratic(exact, 1).optimum(), Quadratic(exact, 2).optimum());
  const Quadratic objective(exact, 1);
  EXPECT_NE(objective.initial_parameters(1), objective.initial_parameters(2));
  const auto start = objective.initial_parameters(1);
  EXPECT_NE(std::vector<double>(start.begin(), start.end()), objective.optimum());
}

}  // namespace
}  // namespace syncopate
