// Arithmetic on vectors of many blocks and ranges, no two elements of which are alike, against formulas in double
// precision: an element that is taken from another place is seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "tests/workers/engine.hpp"

namespace syncopate {
namespace {

constexpr std::size_t elements = 150'001, decayed = 60'001;  // several ranges, and no multiple of a block

// Pulls parameter i towards (worker + 1) i / 1000.
double ramp(int worker, std::size_t i) { return 1e-3 * (worker + 1) * static_cast<double>(i); }

class Ramp : public PullObjective {
 public:
  Ramp() : PullObjective(elements, decayed) {}
  PartialGradient gradient(const float* parameters, const float*,
                           std::span<const MicroBatch> micro_batches) const override {
    auto values = std::make_shared<std::vector<float>>(elements, 0.0f);
    for (const MicroBatch& micro_batch : micro_batches)
      for (std::size_t i = 0; i < elements; ++i)
        (*values)[i] += static_cast<float>(parameters[i] - ramp(micro_batch.worker.value, i));
    PartialGradient result;
    // In three segments, whose borders are those of no block.
    for (std::size_t begin = 0; begin < elements; begin += 50'001) {
      const std::size_t length = std::min<std::size_t>(50'001, elements - begin);
      result.segments.push_back({.offset = begin, .size = length, .data = values->data() + begin, .owner = values});
    }
    return result;
  }
};

using Values = std::vector<double>;

void expect_near(const std::vector<float>& found, const Values& expected, double relative) {
  ASSERT_EQ(found.size(), expected.size());
  double worst = 0;
  std::size_t where = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double off = std::abs(found[i] - expected[i]) / (1 + std::abs(expected[i]));
    if (off > worst) worst = off, where = i;
  }
  EXPECT_LE(worst, relative) << "at " << where;
}

// theta, and v of momentum; AdamW's m and s.
struct Reference {
  Values theta = Values(elements, 1.0), first = Values(elements), second = Values(elements);
};

TEST(LargeVectors, StepsWithMomentumDecayAndClippingFollowTheFormula) {
  constexpr double momentum = 0.9, decay = 0.01, rate = 0.1, clip_norm = 5000;
  Engine engine(std::make_shared<Ramp>(), make_sgd({.momentum = momentum, .weight_decay = {.rate = decay}}),
                {.clip_norm = clip_norm});
  auto state = engine.training.initial_state();
  Reference expected;
  int clipped = 0;
  for (int step = 0; step < 4; ++step) {
    const Gradient gradient = engine.promise(state, step);
    state = engine.training.descend(std::move(state), gradient, rate);
    double squares = 0;
    for (std::size_t i = 0; i < elements; ++i) squares += std::pow(expected.theta[i] - ramp(step, i), 2);
    const double scale = std::min(1.0, clip_norm / std::sqrt(squares));
    clipped += scale < 1;
    for (std::size_t i = 0; i < elements; ++i) {
      const double g = scale * (expected.theta[i] - ramp(step, i));
      expected.first[i] = momentum * expected.first[i] + g + (i < decayed ? decay * expected.theta[i] : 0);
      expected.theta[i] -= rate * expected.first[i];
    }
  }
  EXPECT_GE(clipped, 3);
  expect_near(engine.training.values(state), expected.theta, 1e-5);
}

TEST(LargeVectors, StepsOfAdamWFollowTheFormula) {
  constexpr double beta1 = 0.8, beta2 = 0.9, epsilon = 0.1, decay = 0.05, rate = 0.1;
  Engine engine(
      std::make_shared<Ramp>(),
      make_adamw({.beta1 = beta1,
                  .beta2 = beta2,
                  .epsilon = epsilon,
                  .weight_decay = {.rate = decay, .scope = DecayScope::weights, .form = DecayForm::decoupled}}));
  auto state = engine.training.initial_state();
  Reference expected;
  for (int step = 0; step < 4; ++step) {
    const Gradient gradient = engine.promise(state, step);
    state = engine.training.descend(std::move(state), gradient, rate);
    for (std::size_t i = 0; i < elements; ++i) {
      const double g = expected.theta[i] - ramp(step, i);
      double& m = expected.first[i];
      double& s = expected.second[i];
      m = beta1 * m + (1 - beta1) * g;
      s = beta2 * s + (1 - beta2) * g * g;
      const double corrected = m / (1 - std::pow(beta1, step + 1)),
                   root = std::sqrt(s / (1 - std::pow(beta2, step + 1)));
      expected.theta[i] -= rate * (corrected / (root + epsilon) + (i < decayed ? decay * expected.theta[i] : 0));
    }
  }
  expect_near(engine.training.values(state), expected.theta, 1e-5);
}

// Of five models, so that no sum is one of the few terms that are added at once.
TEST(LargeVectors, AveragesAndCombinationsFollowTheFormula) {
  Engine engine(std::make_shared<Ramp>(), make_sgd({.momentum = 0.5}));
  const auto start = engine.training.initial_state();
  std::vector<ModelStatePtr> states;
  for (int worker = 0; worker < 5; ++worker) states.push_back(engine.at_target(start, worker));
  const auto times_ramp = [](double factor, double constant = 0) {
    Values values(elements);
    for (std::size_t i = 0; i < elements; ++i) values[i] = constant + factor * ramp(0, i);
    return values;
  };
  const AveragePolicy policy{.moments = {StatePolicy::average, StatePolicy::average}};
  const auto mean = engine.training.average(states, policy);
  expect_near(engine.training.values(mean[3]), times_ramp(3), 1e-5);
  expect_near(engine.values(mean[3]->moments[0].values), times_ramp(-3, 1), 1e-5);  // of the gradients: 1 - target
  const std::vector<double> by_number = {1, 2, 3, 4, 5};
  const auto weighted = engine.training.average(states, policy, by_number);
  expect_near(engine.training.values(weighted[0]), times_ramp((1 + 4 + 9 + 16 + 25) / 15.0), 1e-5);
  const std::vector<double> factors = {0.5, -1, 0.25, 2, 0.125};
  std::vector<WeightedState> terms;
  double sum = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    terms.push_back({factors[i], states[i]});
    sum += factors[i] * static_cast<double>(i + 1);
    expect_near(engine.training.values(engine.training.combine(terms)), times_ramp(sum), 1e-5);
  }
}

TEST(LargeVectors, SumsOfGradientsTheirNormAndTheirBytesFollowTheFormula) {
  Engine engine(std::make_shared<Ramp>(), make_sgd({}));
  const auto start = engine.training.initial_state();
  Gradient sum = engine.training.share(engine.promise(start, 0)) * 2;
  sum += engine.training.share(engine.promise(start, 2)) * 0.5;
  sum += engine.promise(start, 4);
  Values expected(elements);
  double squares = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    expected[i] = 2 * (1 - ramp(0, i)) + 0.5 * (1 - ramp(2, i)) + 1 - ramp(4, i);
    squares += expected[i] * expected[i];
  }
  for (const bool wide : {false, true}) {
    if (wide) sum.use_double_precision();
    expect_near(engine.training.values(sum), expected, 1e-5);
    EXPECT_NEAR(engine.training.norm(sum), std::sqrt(squares), 1e-5 * std::sqrt(squares));
    FlatVector bytes(engine.training.gradient_size(wide));
    engine.training.write_values(sum, bytes.data());
    const Gradient received = engine.training.gradient_from(std::move(bytes), 3, {}, wide);
    expect_near(engine.training.values(received), expected, 1e-5);
  }
}

}  // namespace
}  // namespace syncopate
