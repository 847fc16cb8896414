#include "workers/models/formulas.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <utility>
#include <vector>

namespace syncopate {
namespace {

constexpr QuadraticOptions exact{.dimension = 5, .condition = 16, .noise = 0};
constexpr QuadraticOptions noisy{.dimension = 5, .condition = 16, .noise = 0.5};

std::vector<float> gradient_at(const Objective& objective, const std::vector<float>& theta,
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
  double neighbours = 0;     // products of neighbouring coordinates
  double micro_batches = 0;  // products with the previous micro-batch's
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
  // Five standard errors of the mean of 20,000 standard normal numbers, their squares or products.
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

// The loss of a quadratic objective is a parabola along any line, so its central difference is exact.
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

// For one noisy micro-batch, central differences of loss_sum equal the gradient. Losses are polynomials of degree four,
// so the error of a difference is proportional to the square of its step.
void expect_gradient_of_loss(const Objective& objective, std::vector<float> theta) {
  const MicroBatch micro_batch{.worker = Rank{1}, .step = 3, .index = 1};
  const auto gradient = gradient_at(objective, theta, std::span(&micro_batch, 1));
  for (std::size_t i = 0; i < theta.size(); ++i) {
    const auto loss_at = [&](float value) {
      auto moved = theta;
      moved[i] = value;
      return objective.gradient(moved.data(), nullptr, std::span(&micro_batch, 1)).loss_sum;
    };
    const float above = theta[i] + 1e-3f, below = theta[i] - 1e-3f;
    EXPECT_NEAR((loss_at(above) - loss_at(below)) / (above - below), gradient[i], 1e-4) << i;
  }
}

// Compares the gradient of an evaluation and columns of its Hessian with central differences.
void expect_derivatives_of_evaluation(const Objective& objective, const std::vector<float>& theta, Split split) {
  const auto gradient = objective.derivative(theta.data(), nullptr, split, 0, 1, {});
  for (std::size_t i = 0; i < theta.size(); ++i) {
    auto above = theta, below = theta;
    above[i] += 1e-3f;
    below[i] -= 1e-3f;
    const double step = above[i] - below[i];
    const auto loss = [&](const std::vector<float>& at) {
      return objective.evaluate(at.data(), nullptr, split, 0, 1).loss;
    };
    EXPECT_NEAR((loss(above) - loss(below)) / step, gradient[i], 1e-4) << i;
    std::vector<double> unit(theta.size());
    unit[i] = 1;
    const auto column = objective.derivative(theta.data(), nullptr, split, 0, 1, unit);
    const auto high = objective.derivative(above.data(), nullptr, split, 0, 1, {});
    const auto low = objective.derivative(below.data(), nullptr, split, 0, 1, {});
    for (std::size_t k = 0; k < theta.size(); ++k) EXPECT_NEAR((high[k] - low[k]) / step, column[k], 1e-4) << i << k;
  }
}

TEST(Valley, GradientsAndDerivativesAreThoseOfItsLoss) {
  const Valley valley({.pairs = 2, .noise = 0.5}, 1);
  const std::vector<float> theta = {1.5f, -0.5f, 0.25f, 2};  // u, u, v, v
  EXPECT_NEAR(valley.evaluate(theta.data(), nullptr, Split::test, 0, 1).loss,
              (1.5 * 1.5 * 0.25 * 0.25 + 0.5 * 0.5 * 2 * 2) / 2, 1e-12);
  expect_gradient_of_loss(valley, theta);
  expect_derivatives_of_evaluation(valley, theta, Split::train);
}

TEST(Valley, StartsAtAMinimumOfTheDeclaredSharpness) {
  const Valley valley({.pairs = 2, .start = 3}, 1);
  const auto start = valley.initial_parameters(7);
  EXPECT_EQ(start, (std::vector<float>{3, 3, 0, 0}));
  EXPECT_EQ(valley.evaluate(start.data(), nullptr, Split::train, 0, 1).loss, 0);
  const std::vector<double> across = {0, 0, 1, 0};
  EXPECT_THAT(valley.derivative(start.data(), nullptr, Split::train, 0, 1, across), testing::ElementsAre(0, 0, 9, 0));
}

// A second implementation of local SGD: K workers, averages every H steps. Returns the mean decrease of u^2.
double drift(double rate, int workers, int period, int steps, std::size_t pairs) {
  const Valley valley({.pairs = static_cast<std::int64_t>(pairs), .start = 2, .noise = std::sqrt(0.1)}, 1);
  std::vector<std::vector<float>> models(static_cast<std::size_t>(workers), valley.initial_parameters(1));
  for (int step = 0; step < steps; ++step) {
    for (int worker = 0; worker < workers; ++worker) {
      auto& model = models[static_cast<std::size_t>(worker)];
      const MicroBatch micro_batch{.worker = Rank{worker}, .step = step};
      const auto gradient = gradient_at(valley, model, std::span(&micro_batch, 1));
      for (std::size_t i = 0; i < model.size(); ++i) model[i] -= static_cast<float>(rate) * gradient[i];
    }
    if ((step + 1) % period != 0) continue;
    for (std::size_t i = 0; i < models[0].size(); ++i) {
      double mean = 0;
      for (const auto& model : models) mean += model[i] / static_cast<double>(workers);
      for (auto& model : models) model[i] = static_cast<float>(mean);
    }
  }
  double fall = 0;
  for (std::size_t i = 0; i < pairs; ++i) fall += (4 - models[0][i] * models[0][i]) / static_cast<double>(pairs);
  return fall;
}

// The closed form in formulas.hpp, integrated over the slow time eta^2 t with the learning rate eta.
double expected_drift(double rate, int workers, int period, int steps) {
  double q = 4;
  const double end = rate * rate * steps, slice = end / 10'000;
  for (double time = 0; time < end; time += slice) {
    const double rho = (1 - rate * q) * (1 - rate * q);
    const double psi = 1 - (1 - std::pow(rho, period)) / (period * (1 - rho));
    q -= slice * 0.1 / workers * (1 + (workers - 1) * psi) / (1 - rate * q / 2);
  }
  return 4 - q;
}

TEST(Valley, LocalSgdDriftsAsTheClosedFormSays) {
  constexpr double rate = 0.05;
  constexpr int workers = 8, steps = 4000;
  for (const int period : {1, 4, 16}) {
    const double expected = expected_drift(rate, workers, period, steps);
    EXPECT_NEAR(drift(rate, workers, period, steps, 64), expected, 0.03 * expected) << period;
  }
  EXPECT_GT(expected_drift(rate, workers, 16, steps), 5 * expected_drift(rate, workers, 1, steps));
}

constexpr DiagonalLinearOptions small_problem{.dimension = 4, .inputs = 3, .active = 3, .label_noise = 0.25};

TEST(DiagonalLinear, GradientsAndDerivativesAreThoseOfItsLosses) {
  const DiagonalLinear problem(small_problem, 5);
  const std::vector<float> theta = {0.5f, 1, -0.25f, 0.75f, 1.5f, -0.5f, 0.5f, 1};
  expect_gradient_of_loss(problem, theta);
  expect_derivatives_of_evaluation(problem, theta, Split::train);
  expect_derivatives_of_evaluation(problem, theta, Split::test);
}

TEST(DiagonalLinear, LossesAreSquaredErrorsAgainstTheTruth) {
  const DiagonalLinear problem(small_problem, 5);
  EXPECT_THAT(problem.truth(), testing::ElementsAre(1, -1, 1, 0));
  const std::vector<float> fits = {1, 0, 1, 0.5f, 0, 1, 0, 0.5f};
  EXPECT_EQ(problem.evaluate(fits.data(), nullptr, Split::train, 0, 1).loss, 0);
  EXPECT_EQ(problem.evaluate(fits.data(), nullptr, Split::test, 0, 1).loss, 0);
  const std::vector<float> nothing(8, 0.6f);  // all eight parameters equal: the network's output is 0
  double train = 0;
  for (std::size_t j = 0; j < 3; ++j) {
    const auto x = problem.input(j);
    const double target = x[0] - x[1] + x[2];
    train += target * target / 2 / 3;
  }
  EXPECT_NEAR(problem.evaluate(nothing.data(), nullptr, Split::train, 0, 1).loss, train, 1e-12);
  EXPECT_NEAR(problem.evaluate(nothing.data(), nullptr, Split::test, 0, 1).loss, 3, 1e-12);
}

// At the true parameters, the error of a micro-batch is its label noise alone.
TEST(DiagonalLinear, MicroBatchesDrawEveryInputAndBothSignsEquallyOften) {
  const DiagonalLinear problem(small_problem, 5);
  const std::vector<float> truth = {1, 0, 1, 0, 0, 1, 0, 0};
  std::map<std::pair<std::size_t, bool>, int> counts;
  constexpr int draws = 6000;
  for (int n = 0; n < draws; ++n) {
    const MicroBatch micro_batch{.worker = Rank{n % 4}, .step = n / 8, .index = n / 4 % 2};
    const auto gradient = gradient_at(problem, truth, std::span(&micro_batch, 1));
    for (std::size_t j = 0; j < 3; ++j)
      for (const bool positive : {false, true})
        if (std::abs(gradient[0] - 2 * (positive ? 0.25 : -0.25) * problem.input(j)[0]) < 1e-6) ++counts[{j, positive}];
  }
  ASSERT_EQ(counts.size(), 6u);
  for (const auto& [drawn, count] : counts) EXPECT_NEAR(count, draws / 6, 5 * std::sqrt(draws / 6.0)) << drawn.first;
}

TEST(DiagonalLinear, SeedsDrawTheInputsUnlessTheProblemHasASeed) {
  const auto first = [](const DiagonalLinearOptions& options, std::uint64_t seed) {
    return DiagonalLinear(options, seed).input(0)[0];
  };
  EXPECT_NE(first(small_problem, 1), first(small_problem, 2));
  DiagonalLinearOptions fixed = small_problem;
  fixed.problem_seed = 1;
  EXPECT_EQ(first(fixed, 2), first(small_problem, 1));
}

}  // namespace
}  // namespace syncopate
