// The noise scale of gradients, against closed forms.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/workers/engine.hpp"
#include "workers/base/random.hpp"
#include "workers/data/datasets.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/torch_objective.hpp"
#include "workers/training/evaluation.hpp"

namespace syncopate {
namespace {

TEST(GradientNoise, OfTwoSamplesIsHalfTheSquareOfTheirDifference) {
  const std::vector<std::vector<double>> gradients = {{1, 0}, {3, 0}};
  const GradientNoise noise =
      gradient_noise(2, 2, [&](std::int64_t sample) { return gradients[static_cast<std::size_t>(sample)]; });
  EXPECT_DOUBLE_EQ(noise.variance, 2);
  EXPECT_DOUBLE_EQ(*noise.scale, 2.0 / 3);  // |G|^2 = 2^2 - 2 / 2
}

TEST(GradientNoise, HasNoScaleWhereTheGradientDrownsInIt) {
  const std::vector<std::vector<double>> gradients = {{1}, {-1}};
  const GradientNoise noise =
      gradient_noise(1, 2, [&](std::int64_t sample) { return gradients[static_cast<std::size_t>(sample)]; });
  EXPECT_DOUBLE_EQ(noise.variance, 2);
  EXPECT_FALSE(noise.scale);
}

// Gradients of known mean (1, 2, 3) and deviations 1, 2, 0.5: tr(S) = 5.25 and |G|^2 = 14.
TEST(GradientNoise, IsWithoutBias) {
  const std::vector<double> mean = {1, 2, 3}, deviations = {1, 2, 0.5};
  constexpr std::int64_t samples = 20, repetitions = 4000;
  double variance = 0, square = 0;
  for (std::int64_t repetition = 0; repetition < repetitions; ++repetition) {
    const GradientNoise noise = gradient_noise(3, samples, [&](std::int64_t sample) {
      std::vector<double> gradient(3);
      fill_standard_normal({.seed = 1, .purpose = Purpose::measurement, .step = Step{repetition * samples + sample}}, 0,
                           gradient);
      for (std::size_t i = 0; i < 3; ++i) gradient[i] = mean[i] + deviations[i] * gradient[i];
      return gradient;
    });
    variance += noise.variance / repetitions;
    square += noise.variance / *noise.scale / repetitions;
  }
  // Deviations of a repetition's: sqrt(2 x (1 + 16 + 0.0625) / 19) = 1.34, and less than 2.2 (of |mean|^2, 4 m^T S m /
  // 20).
  EXPECT_NEAR(variance, 5.25, 5 * 1.34 / std::sqrt(repetitions));
  EXPECT_NEAR(square, 14, 5 * 2.2 / std::sqrt(repetitions));
}

// What the scale is for: the mean square of a batch's gradient is |G|^2 + tr(S) / B. Of a softmax regression.
TEST(GradientNoise, SaysHowTheNormOfABatchFallsWithItsSize) {
  constexpr std::size_t samples = 400;
  const auto dataset = make_gaussian_mixture({.classes = 3, .dimension = 5, .train = samples, .test = 10}, 3);
  const TorchObjective objective(linear_network(dataset->size().shape, 3), dataset,
                                 SamplerOptions{.samples = samples, .micro_batch_size = 4}, 32, 0);
  const std::vector<float> parameters(objective.parameters(), 0.1f);
  std::vector<std::vector<double>> gradients;
  const GradientNoise noise = gradient_noise(objective.parameters(), samples, [&](std::int64_t sample) {
    return gradients.emplace_back(
        objective.derivative(parameters.data(), nullptr, Split::train, sample, sample + 1, {}));
  });
  ASSERT_TRUE(noise.scale);
  const double square = noise.variance / *noise.scale;
  constexpr std::int64_t draws = 4000;
  std::vector<double> places(40);
  for (const std::size_t batch : {2u, 10u, 40u}) {
    double mean_square = 0;
    for (std::int64_t draw = 0; draw < draws; ++draw) {
      RandomStream{.seed = 1, .purpose = Purpose::measurement, .step = Step{draw}}.fill_uniform(0, places);
      std::vector<double> mean(objective.parameters());
      for (std::size_t k = 0; k < batch; ++k) {
        const auto& gradient = gradients[static_cast<std::size_t>(places[k] * samples)];
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += gradient[i] / static_cast<double>(batch);
      }
      for (const double element : mean) mean_square += element * element / draws;
    }
    EXPECT_NEAR(mean_square / (square + noise.variance / static_cast<double>(batch)), 1, 0.05) << batch;
  }
}

}  // namespace
}  // namespace syncopate
