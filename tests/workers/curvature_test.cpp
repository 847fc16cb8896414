#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "tests/workers/engine.hpp"
#include "tests/workers/pull_objective.hpp"
#include "workers/base/random.hpp"
#include "workers/data/datasets.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/formulas.hpp"
#include "workers/models/torch_objective.hpp"
#include "workers/training/training.hpp"

namespace syncopate {
namespace {

HessianProduct diagonal(std::vector<double> values) {
  return [values = std::move(values)](std::span<const double> vector) {
    std::vector<double> product(vector.begin(), vector.end());
    for (std::size_t i = 0; i < product.size(); ++i) product[i] *= values[i];
    return product;
  };
}

constexpr CurvatureOptions precise{.most_products = 5000, .tolerance = 1e-12};

TEST(Curvature, OfADiagonalMatrixIsItsEntries) {
  EXPECT_NEAR(largest_eigenvalue(4, diagonal({0.5, 3, 1, 2}), precise), 3, 1e-6);
  EXPECT_NEAR(largest_eigenvalue(3, diagonal({-5, 3, 1}), precise), 3, 1e-6);  // not -5, which has a larger magnitude
  EXPECT_NEAR(largest_eigenvalue(3, diagonal({-5, -3, -4}), precise), -3, 1e-6);
  EXPECT_EQ(largest_eigenvalue(3, diagonal({0, 0, 0}), precise), 0);
  int draws = 0;
  const auto counted = [&, product = diagonal({0.5, -3, 1, 2})](std::span<const double> vector) {
    ++draws;
    return product(vector);
  };
  EXPECT_DOUBLE_EQ(hessian_trace(4, counted, {}), 0.5);
  EXPECT_EQ(draws, 2);  // the second draw shows that the estimate does not change
}

// The variance of a draw is twice the sum of the squared off-diagonal elements.
TEST(Curvature, TheTraceOfAFullMatrixIsEstimatedWithinItsDeviation) {
  constexpr std::size_t size = 20;
  const auto entry = [](std::size_t i, std::size_t j) { return 1.0 / static_cast<double>(1 + i + j); };
  const auto product = [&](std::span<const double> vector) {
    std::vector<double> result(size);
    for (std::size_t i = 0; i < size; ++i)
      for (std::size_t j = 0; j < size; ++j) result[i] += entry(i, j) * vector[j];
    return result;
  };
  double trace = 0, beside = 0;
  for (std::size_t i = 0; i < size; ++i)
    for (std::size_t j = 0; j < size; ++j)
      (i == j ? trace : beside) += i == j ? entry(i, i) : entry(i, j) * entry(i, j);
  constexpr int draws = 4000;
  EXPECT_NEAR(hessian_trace(size, product, {.most_products = draws, .tolerance = 0}), trace,
              4 * std::sqrt(2 * beside / draws));
}

TEST(Curvature, StopsAtItsToleranceAndAtMostAfterSoManyProducts) {
  int products = 0;
  const auto counted = [&, product = diagonal({1, 0.999})](std::span<const double> vector) {
    ++products;
    return product(vector);
  };
  largest_eigenvalue(2, counted, {.most_products = 7, .tolerance = 0});
  EXPECT_EQ(products, 7);
  products = 0;
  largest_eigenvalue(2, counted, {.most_products = 1000, .tolerance = 0.1});
  EXPECT_LE(products, 3);
}

ModelMeasures measured(Training& training, const ModelStatePtr& state, MeasureOptions options) {
  options.gradient_norm = options.largest_eigenvalue = options.hessian_trace = true;
  ModelMeasures result;
  training.measure(state, options, [&](const ModelMeasures& measures) { result = measures; });
  training.executor().wait_all();
  return result;
}

TEST(Curvature, OfTheQuadraticIsKnown) {
  const auto quadratic = std::make_shared<Quadratic>(QuadraticOptions{.dimension = 10, .condition = 50}, 3);
  Executor executor(1);
  Training training(quadratic, make_sgd({}), {}, executor);
  const ModelStatePtr state = training.initial_state();
  const auto values = training.values(state);
  double trace = 0, squares = 0, of_parameters = 0;
  for (std::size_t i = 0; i < 10; ++i) {
    const double slope = quadratic->curvatures()[i] * (values[i] - quadratic->optimum()[i]);
    trace += quadratic->curvatures()[i];
    squares += slope * slope;
    of_parameters += static_cast<double>(values[i]) * values[i];
  }
  const ModelMeasures found = measured(training, state, {.curvature = {.most_products = 1000, .tolerance = 1e-10}});
  EXPECT_NEAR(*found.largest_eigenvalue, 1, 1e-6);
  EXPECT_NEAR(*found.hessian_trace, trace, 1e-9);
  EXPECT_NEAR(*found.gradient_norm, std::sqrt(squares), 1e-6);
  EXPECT_NEAR(*found.parameter_norm, std::sqrt(of_parameters), 1e-6);
}

// Gradient descent decreases the loss at a rate below 2 / the largest eigenvalue and increases it above.
TEST(Curvature, SaysAtWhatRateGradientDescentIsStable) {
  const auto quadratic = std::make_shared<Quadratic>(QuadraticOptions{.dimension = 10, .condition = 50, .noise = 0}, 3);
  Executor executor(1);
  Training training(quadratic, make_sgd({}), {}, executor);
  const double largest =
      *measured(training, training.initial_state(), {.curvature = {.most_products = 1000, .tolerance = 1e-8}})
           .largest_eigenvalue;
  for (const double part : {0.95, 1.05}) {
    ModelStatePtr state = training.initial_state();
    const auto loss = [&] {
      return quadratic->evaluate(training.values(state).data(), nullptr, Split::train, 0, 1).loss;
    };
    const double before = loss();
    for (int step = 0; step < 200; ++step)
      state = training.descend(state, Gradient(state, MicroBatch{Rank{0}, step, 0}, {}), part * 2 / largest);
    EXPECT_EQ(loss() < before, part < 1) << loss() << " from " << before;
  }
}

// In softmax regression H is the mean Kronecker product of diag(p) - p p^T and (x, 1)(x, 1)^T, in double precision.
TEST(Curvature, OfSoftmaxRegressionIsThatOfItsFormula) {
  constexpr std::size_t classes = 3, features = 4, samples = 50, size = classes * (features + 1);
  const auto dataset = make_gaussian_mixture({.classes = classes, .dimension = features, .train = 60, .test = 10}, 5);
  const auto objective = std::make_shared<TorchObjective>(linear_network(dataset->size().shape, classes), dataset,
                                                          SamplerOptions{.samples = 60, .micro_batch_size = 4}, 32,
                                                          0.1);  // label smoothing does not change H
  Executor executor(1);
  Training training(objective, make_sgd({}), {}, executor);
  const ModelStatePtr state = training.initial_state();
  const std::vector<float> theta = training.values(state);
  std::vector<std::uint32_t> numbers(samples);
  for (std::size_t i = 0; i < samples; ++i) numbers[i] = static_cast<std::uint32_t>(i);
  std::vector<float> inputs(samples * features);
  std::vector<std::int64_t> labels(samples);
  dataset->gather(Split::train, numbers, inputs.data(), labels.data());

  std::vector<double> hessian(size * size), gradient(size);
  const auto place = [](std::size_t k, std::size_t f) {
    return f < features ? k * features + f : classes * features + k;
  };
  for (std::size_t s = 0; s < samples; ++s) {
    std::vector<double> x(inputs.begin() + static_cast<std::ptrdiff_t>(s * features),
                          inputs.begin() + static_cast<std::ptrdiff_t>((s + 1) * features));
    x.push_back(1);
    std::vector<double> p(classes);
    double sum = 0;
    for (std::size_t k = 0; k < classes; ++k) {
      double logit = 0;
      for (std::size_t f = 0; f <= features; ++f) logit += theta[place(k, f)] * x[f];
      sum += p[k] = std::exp(logit);
    }
    for (double& probability : p) probability /= sum;
    for (std::size_t k = 0; k < classes; ++k)
      for (std::size_t f = 0; f <= features; ++f) {
        gradient[place(k, f)] += (p[k] - (static_cast<std::size_t>(labels[s]) == k)) * x[f] / samples;
        for (std::size_t l = 0; l < classes; ++l)
          for (std::size_t g = 0; g <= features; ++g)
            hessian[place(k, f) * size + place(l, g)] += ((k == l) * p[k] - p[k] * p[l]) * x[f] * x[g] / samples;
      }
  }
  double trace = 0, squares = 0;
  for (std::size_t i = 0; i < size; ++i) {
    trace += hessian[i * size + i];
    squares += gradient[i] * gradient[i];
  }
  const auto product = [&](std::span<const double> vector) {
    std::vector<double> result(size);
    for (std::size_t i = 0; i < size; ++i)
      for (std::size_t j = 0; j < size; ++j) result[i] += hessian[i * size + j] * vector[j];
    return result;
  };
  const CurvatureOptions same{.most_products = 3000, .tolerance = 0};
  const MeasureOptions options{.samples = samples, .curvature = same};
  const ModelMeasures found = measured(training, state, options);
  EXPECT_NEAR(*found.gradient_norm, std::sqrt(squares), 1e-6 * std::sqrt(squares));
  EXPECT_NEAR(*found.largest_eigenvalue, largest_eigenvalue(size, product, same), 1e-6 * *found.largest_eigenvalue);
  EXPECT_NEAR(*found.hessian_trace, hessian_trace(size, product, same), 1e-6 * trace);
  EXPECT_NEAR(*found.hessian_trace, trace, 0.05 * trace);
}

// The noise scale of gradients, compared with closed forms.

TEST(GradientNoise, OfTwoSamplesIsHalfTheSquareOfTheirDifference) {
  const std::vector<std::vector<double>> gradients = {{1, 0}, {3, 0}};
  const GradientNoise noise =
      gradient_noise(2, 2, [&](std::int64_t sample) { return gradients[static_cast<std::size_t>(sample)]; });
  EXPECT_DOUBLE_EQ(noise.variance, 2);
  EXPECT_DOUBLE_EQ(*noise.scale, 2.0 / 3);  // |G|^2 = |mean|^2 - variance / samples = 2^2 - 2 / 2
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
  // In one repetition the standard deviation of tr(S) is sqrt(2 (1^4 + 2^4 + 0.5^4) / 19) = 1.34, with 19 degrees of
  // freedom. For |G|^2 it is less than 2.2: the variance is nearly 4 m^T S m / 20 = 3.9, with the mean gradient m.
  EXPECT_NEAR(variance, 5.25, 5 * 1.34 / std::sqrt(repetitions));
  EXPECT_NEAR(square, 14, 5 * 2.2 / std::sqrt(repetitions));
}

// The noise scale, tr(S) / |G|^2, predicts the mean square of the gradient of a batch of B samples: |G|^2 + tr(S) / B.
// Tested with a softmax regression.
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

// The bias of kept gradients, compared with closed forms.

std::vector<MicroBatch> micro_batches(int steps, std::initializer_list<int> indices) {
  std::vector<MicroBatch> all;
  for (int step = 0; step < steps; ++step)
    for (const int index : indices)
      for (int worker = 0; worker < 3; ++worker) all.push_back({Rank{worker}, step, index});
  return all;
}

// The targets of index 0 and 1 differ by 3 in each of the 4 elements, so keeping index 0 alone shifts the mean by 1.5.
// Of 14 steps, even and odd ones have the same mean target at index 0: 30 + 1 + i. Over index 0 and 1 the mean target
// is 1.5 larger.
TEST(GradientBias, OfKeptMicroBatchesThatDifferByAConstantIsItsShare) {
  for (const std::int64_t chunk : {1, 5, 64}) {
    const PullObjective objective(4, 4, chunk);
    const std::vector<float> zero(4);
    const auto bias = gradient_bias(objective, zero.data(), micro_batches(14, {0}), micro_batches(14, {1}));
    ASSERT_TRUE(bias);
    EXPECT_NEAR(bias->squared_bias, 4 * 1.5 * 1.5, 1e-9);
    double square = 0;
    for (int i = 0; i < 4; ++i) square += (30 + 1 + i + 1.5) * (30 + 1 + i + 1.5);
    EXPECT_NEAR(bias->squared_gradient, square, 1e-9);
    EXPECT_NEAR(bias->squared_noise, 0, 1e-12);
  }
}

TEST(GradientBias, NeedsKeptMicroBatchesInEvenAndInOddSteps) {
  const PullObjective objective(4, 4);
  const std::vector<float> zero(4);
  EXPECT_FALSE(gradient_bias(objective, zero.data(), micro_batches(1, {0}), micro_batches(2, {1})));
  EXPECT_FALSE(gradient_bias(objective, zero.data(), {}, micro_batches(2, {1})));
  EXPECT_TRUE(gradient_bias(objective, zero.data(), micro_batches(2, {0}), {}));
}

// Gradients with a mean of 1 and a variance of 4 in each of 5 elements; those of index 1 have a mean of 1 + shift.
class NoisyObjective : public PullObjective {
 public:
  NoisyObjective(std::uint64_t seed, double shift) : PullObjective(5, 5), seed_(seed), shift_(shift) {}
  PartialGradient gradient(const float*, const float*, std::span<const MicroBatch> batch) const override {
    const auto sum = std::make_shared<std::vector<float>>(5);
    for (const MicroBatch& each : batch) {
      std::vector<double> noise(5);
      const RandomStream stream{.seed = seed_,
                                .purpose = Purpose::measurement,
                                .stream = static_cast<std::uint8_t>(each.index),
                                .worker = each.worker,
                                .step = each.step};
      fill_standard_normal(stream, 0, noise);
      for (std::size_t i = 0; i < 5; ++i)
        (*sum)[i] += static_cast<float>(1 + 2 * noise[i] + (each.index == 1 ? shift_ : 0));
    }
    return {.segments = {{.offset = 0, .size = 5, .data = sum->data(), .owner = sum}}, .buffers_sum = {}};
  }

 private:
  std::uint64_t seed_;
  double shift_;
};

// Half of the micro-batches, those of index 1, are dropped. Elements of their gradients have the mean 1 + shift. So an
// element of the kept mean has the bias -shift / 2, and an element of the mean of all gradients is 1 + shift / 2. The
// squared noise of a step's 3 kept gradients is 5 x 4 / 3.
TEST(GradientBias, IsEstimatedWithoutBiasUnderNoise) {
  constexpr int repetitions = 2000, steps = 10;
  for (const double shift : {0.0, 1.0}) {
    GradientBias mean;
    const std::vector<float> zero(5);
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      const NoisyObjective objective(static_cast<std::uint64_t>(repetition), shift);
      const auto bias = gradient_bias(objective, zero.data(), micro_batches(steps, {0}), micro_batches(steps, {1}));
      mean.squared_bias += bias->squared_bias / repetitions;
      mean.squared_gradient += bias->squared_gradient / repetitions;
      mean.squared_noise += bias->squared_noise / repetitions;
    }
    // Each element of k_h - m_h has a variance of 4 / 30: it is half the difference of two means of 15. So a product of
    // two has a standard deviation of at most sqrt((4 / 30)^2 + 2 (4 / 30) shift^2 / 4) = 0.29, and the sum of five
    // 0.65.
    EXPECT_NEAR(mean.squared_bias, 5 * shift * shift / 4, 5 * 0.65 / std::sqrt(repetitions));
    // An element of m_h has the same variance and a mean of at most 1.5. So a product of two has a standard deviation
    // of at most sqrt((4 / 30)^2 + 2 (4 / 30) 1.5^2) = 0.79.
    EXPECT_NEAR(mean.squared_gradient, 5 * (1 + shift / 2) * (1 + shift / 2), 5 * 1.77 / std::sqrt(repetitions));
    // A sum of 5 squares of normal numbers has a relative deviation of sqrt(2 / 5).
    EXPECT_NEAR(mean.squared_noise, 20.0 / 3, 5 * 20.0 / 3 * std::sqrt(0.4 / repetitions));
  }
}

}  // namespace
}  // namespace syncopate
