// Sums of gradients with large weights that cancel, as those that decode a gradient code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/workers/engine.hpp"
#include "workers/training/gradient_sum.hpp"

namespace syncopate {
namespace {

// Micro-batches of workers 0 .. 3 in three sums, each with weights near 3e5; what remains of worker w is
// `remainder[w]`. In float32 such weights are 1/32 apart.
constexpr double remainder_of[] = {0.99, 0.99, 0, -0.25};

std::vector<Gradient> coded(Engine& engine, const ModelStatePtr& at) {
  std::vector<Gradient> sums(3);
  const double weights[3][4] = {{300'000.36, -299'999.37, 123'456.7, 0},
                                {-299'999.37, 300'000.36, -23'456.7, 300'000.11},
                                {0, 0, -100'000, -300'000.36}};
  for (std::size_t s = 0; s < 3; ++s)
    for (int worker = 0; worker < 4; ++worker)
      if (weights[s][worker] != 0) sums[s] += engine.promise(at, worker) * weights[s][worker];
  return sums;
}

// Sum of what remains times the gradient at (1, ..., 1).
double expected(std::size_t i) {
  double sum = 0;
  for (int worker = 0; worker < 4; ++worker)
    sum += remainder_of[worker] * (1 - PullObjective::target({Rank{worker}, 0, 0}, i));
  return sum;
}

double largest_error(const std::vector<float>& values) {
  double error = 0;
  for (std::size_t i = 0; i < values.size(); ++i) error = std::max(error, std::abs(values[i] - expected(i)));
  return error;
}

Gradient sum_of(const std::vector<Gradient>& parts, bool wide) {
  Gradient sum;
  for (const auto& part : parts) sum += part;
  if (wide) sum.use_double_precision();
  return sum;
}

TEST(WideGradient, LargeWeightsCancelInDoublePrecision) {
  Engine engine(2, 0, 5000);
  const auto start = engine.training.initial_state();
  const auto parts = coded(engine, start);
  EXPECT_GT(largest_error(engine.training.values(sum_of(parts, false))), 1e-3);
  EXPECT_LT(largest_error(engine.training.values(sum_of(parts, true))), 1e-6);
}

TEST(WideGradient, EachMicroBatchIsEvaluatedOnceAndWhatCancelsNever) {
  Engine engine;
  const auto start = engine.training.initial_state();
  engine.training.values(sum_of(coded(engine, start), true));
  EXPECT_EQ(engine.objective->evaluations, 3);
  EXPECT_FALSE(engine.objective->evaluated.contains({Rank{2}, 0, 0}));
}

TEST(WideGradient, WeightsThatDifferByRoundingAreFused) {
  Engine engine;
  const auto start = engine.training.initial_state();
  Gradient sum;
  for (int worker = 0; worker < 32; ++worker) {
    // 1/3 for all, each with an error of its own in the last places.
    const double large = 1e5 * std::sqrt(worker + 2.0);
    sum += engine.promise(start, worker) * large;
    sum += engine.promise(start, worker) * (1.0 / 3 - large);
  }
  sum.use_double_precision();
  const auto values = engine.training.values(sum);
  EXPECT_EQ(engine.objective->evaluations, 32);
  EXPECT_EQ(engine.objective->calls, 2);  // 32 samples in chunks of at most 64: two halves
  // The sum of 1 - (w + i) over w, by three.
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(values[i], (32 - 31 * 16 - 32.0 * static_cast<double>(i)) / 3, 1e-5);
}

TEST(WideGradient, WeightsThatDifferByMoreStayApart) {
  Engine engine;
  const auto start = engine.training.initial_state();
  std::vector<Gradient::Term> terms;
  const double scales[] = {1, 1 + 0x1p-31, 1 + 0x1p-29, -1, -1 - 0x1p-31, 0x1p-60};
  for (int worker = 0; worker < 6; ++worker)
    terms.push_back({.at = start, .micro_batches = {{Rank{worker}, 0, 0}}, .sum = nullptr, .scale = scales[worker]});
  const auto merged = merge_weights(terms);
  ASSERT_EQ(merged.size(), 6u);
  EXPECT_EQ(merged[0].scale, merged[1].scale);
  EXPECT_NEAR(merged[0].scale, 1, 0x1p-30);
  EXPECT_EQ(merged[2].scale, 1 + 0x1p-29);
  EXPECT_EQ(merged[3].scale, merged[4].scale);
  EXPECT_NEAR(merged[3].scale, -1, 0x1p-30);
  EXPECT_EQ(merged[5].scale, 0x1p-60);  // small, but nothing has cancelled
}

TEST(WideGradient, WhatRoundingLeavesOfZeroIsZero) {
  Engine engine;
  const auto start = engine.training.initial_state();
  std::vector<Gradient::Term> terms;
  for (const double scale : {100'000.1, 200'000.2, -300'000.3})
    terms.push_back({.at = start, .micro_batches = {{Rank{0}, 0, 0}}, .sum = nullptr, .scale = scale});
  ASSERT_NE(-300'000.3 + 100'000.1 + 200'000.2, 0) << "in double precision something is left";
  EXPECT_TRUE(merge_weights(terms).empty());
}

TEST(WideGradient, TheSumOfWeightsDoesNotDependOnTheirOrder) {
  Engine engine;
  const auto start = engine.training.initial_state();
  std::vector<double> scales = {0.1, 0.2, 0.3};  // 0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1
  std::set<double> sums;
  do {
    std::vector<Gradient::Term> terms;
    for (const double scale : scales)
      terms.push_back({.at = start, .micro_batches = {{Rank{0}, 0, 0}}, .sum = nullptr, .scale = scale});
    sums.insert(merge_weights(terms).at(0).scale);
  } while (std::next_permutation(scales.begin(), scales.end()));
  EXPECT_EQ(sums.size(), 1u);
  EXPECT_NEAR(*sums.begin(), 0.6, 1e-15);
}

TEST(WideGradient, EqualMicroBatchesAtDifferentModelsStayApart) {
  Engine engine;
  const auto start = engine.training.initial_state();
  const auto other = engine.at_target(start, 10);  // (10, 11, 12, 13)
  engine.executor.wait_all();
  engine.objective->evaluations = 0;
  Gradient sum = engine.promise(start, 0) * 2;
  sum += engine.promise(other, 0) * 3;
  sum += engine.promise(engine.training.adopt(start, other), 0) * -1;  // the same parameters
  sum.use_double_precision();
  EXPECT_THAT(engine.training.values(sum), testing::ElementsAre(2 * 1 + 2 * 10, 0 + 2 * 10, -2 + 2 * 10, -4 + 2 * 10));
  EXPECT_EQ(engine.objective->evaluations, 2);
}

TEST(WideGradient, TheOrderOfAdditionDoesNotChangeABit) {
  std::vector<std::vector<float>> results;
  for (const std::vector<std::size_t>& order : {std::vector<std::size_t>{0, 1, 2}, {2, 0, 1}, {1, 2, 0}}) {
    Engine engine;
    const auto start = engine.training.initial_state();
    const auto parts = coded(engine, start);
    Gradient sum;
    for (const auto part : order) sum += parts[part];
    sum.use_double_precision();
    results.push_back(engine.training.values(engine.training.descend(start, sum / 3, 0.1)));
  }
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

TEST(WideGradient, AStepAlongItIsTheFormula) {
  for (const bool shared : {false, true}) {
    Engine engine(2, 0, 200'000);
    const auto start = engine.training.initial_state();
    Gradient sum = sum_of(coded(engine, start), true);
    if (shared) sum = engine.training.share(sum);
    EXPECT_TRUE(sum.wide());
    const auto next = engine.training.descend(start, sum / 4, 0.5);
    EXPECT_EQ(engine.training.descend(start, sum / 4, 0.5) == next, shared);
    const auto values = engine.training.values(next);
    for (std::size_t i = 0; i < values.size(); i += 997) ASSERT_NEAR(values[i], 1 - 0.5 * expected(i) / 4, 1e-6);
  }
}

// Each worker's sum as it would come over a network.
Gradient received(Engine& engine, const Gradient& gradient) {
  FlatVector values(engine.training.gradient_size(gradient.wide()));
  engine.training.write_values(gradient, values.data());
  return engine.training.gradient_from(std::move(values), gradient.micro_batches(), gradient.compute_time(),
                                       gradient.wide());
}

TEST(WideGradient, TravelsWithTheDigitsThatFloatsLack) {
  Engine engine(2, 0, 5000);
  const auto start = engine.training.initial_state();
  EXPECT_EQ(engine.training.gradient_size(true), 10'000u);
  for (const bool wide : {false, true}) {
    std::vector<Gradient> arrived;
    for (auto& part : coded(engine, start)) {
      if (wide) part.use_double_precision();
      arrived.push_back(received(engine, part));
      EXPECT_EQ(arrived.back().wide(), wide);
      EXPECT_EQ(arrived.back().compute_time(), part.compute_time());
    }
    const double error = largest_error(engine.training.values(sum_of(arrived, wide)));
    if (wide)
      EXPECT_LT(error, 1e-6);
    else
      EXPECT_GT(error, 1e-3);
  }
}

// Sums that decode: each small, with large weights, in parts that are given as values, narrow or wide.
TEST(WideGradient, NestedSumsAreWeightedInDoublePrecision) {
  Engine engine;
  const auto start = engine.training.initial_state();
  const Gradient a = engine.training.share(engine.promise(start, 0) * (1.0 / 3));
  Gradient b = engine.promise(start, 0) * (1.0 / 3);
  b.use_double_precision();
  b = received(engine, b);
  for (const Gradient& part : {a, b}) {
    for (const bool wide : {false, true}) {
      Gradient sum = part * 300'000.36;
      sum += engine.promise(start, 1);
      sum += engine.training.share(engine.promise(start, 0) * (1.0 / 3)) * -299'999.37;
      if (part.wide() && !wide) continue;  // a sum with a wide part is wide
      if (wide) sum.use_double_precision();
      const auto values = engine.training.values(sum);
      double error = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto difference = static_cast<double>(i);  // g of worker 0 is 1 - i, of worker 1 it is -i
        error = std::max(error, std::abs(values[i] - (0.99 / 3 * (1 - difference) - difference)));
      }
      if (wide)
        EXPECT_LT(error, 1e-6);
      else
        EXPECT_GT(error, 1e-3);
    }
  }
  Gradient both = a;
  both += b;
  EXPECT_TRUE(both.wide());
}

TEST(WideGradient, ASharedNarrowSumCanBeWidened) {
  Engine engine;
  const auto start = engine.training.initial_state();
  Gradient shared = engine.training.share(engine.promise(start, 3)) / 3;
  shared.use_double_precision();
  std::vector<float> values(engine.training.gradient_size(true));
  engine.training.write_values(shared, values.data());
  for (std::size_t i = 0; i < 4; ++i) {
    const double third = (1 - 3.0 - static_cast<double>(i)) / 3;
    EXPECT_EQ(values[i], static_cast<float>(third));
    EXPECT_NEAR(values[4 + i], third - static_cast<float>(third), 1e-14);
  }
}

TEST(WideGradient, BuffersAreTheMeanOverWhatWasEvaluated) {
  Engine engine(std::make_shared<PullWithStatistics>(4, 4), make_sgd({}));
  const auto start = engine.training.initial_state();
  const auto sum = sum_of(coded(engine, start), true);  // workers 0, 1 and 3 remain
  const auto next = engine.training.descend(start, sum, 0.1);
  const auto buffers = engine.values(next->buffers);
  EXPECT_FLOAT_EQ(buffers[0], 4 / 3.0f);
  EXPECT_FLOAT_EQ(buffers[1], 0);

  // Sums that come as values count what each holds: 0, 1, 2; 0, 1, 2, 3; 2, 3.
  Gradient arrived;
  for (auto& part : coded(engine, start)) {
    part.use_double_precision();
    arrived += received(engine, part);
  }
  EXPECT_FLOAT_EQ(engine.values(engine.training.descend(start, arrived, 0.1)->buffers)[0], (3 + 6 + 5) / 9.0f);
}

TEST(WideGradient, WithoutMicroBatchesItIsZero) {
  Engine engine;
  const auto start = engine.training.initial_state();
  Gradient sum = engine.promise(start, 0) * 0.1;
  sum += engine.promise(start, 0) * -0.1;
  sum.use_double_precision();
  EXPECT_THAT(engine.training.values(sum), testing::Each(0.0f));
  EXPECT_EQ(engine.training.values(engine.training.descend(start, sum, 0.1)), engine.training.values(start));
  EXPECT_EQ(engine.objective->evaluations, 0);
}

TEST(WideGradient, IsCountedAsSuchWithoutAModelToo) {
  Executor executor(0);
  Training training(nullptr, nullptr, {}, executor);
  Gradient gradient(nullptr, MicroBatch{}, Duration{5});
  gradient.use_double_precision();
  EXPECT_TRUE(training.share(gradient).wide());
  EXPECT_TRUE(training.gradient_from(FlatVector(), 1, {}, true).wide());
  EXPECT_FALSE(training.gradient_from(FlatVector(), 1).wide());
}

}  // namespace
}  // namespace syncopate
