// Gradients that are promised, and computed once somebody needs them: sums, what they cost, losses, norms.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <set>
#include <vector>

#include "tests/workers/engine.hpp"

namespace syncopate {
namespace {

TEST(PromisedGradients, APromiseThatNobodyConsumesIsNeverComputed) {
  Engine engine;
  const auto state = engine.training.initial_state();
  Gradient kept = engine.promise(state, 0);
  const Gradient dropped = engine.promise(state, 1);
  engine.training.values(engine.training.descend(state, kept, 0.1));
  engine.executor.wait_all();
  EXPECT_EQ(engine.objective->evaluated, (std::set<MicroBatch>{{Rank{0}, 0, 0}}));
  EXPECT_EQ(dropped.micro_batches(), 1);
}

TEST(PromisedGradients, APromiseOfSeveralMicroBatchesIsTheirSum) {
  Engine engine;
  const auto state = engine.training.initial_state();
  const Gradient several(state, {Rank{2}, 7, 3}, 3, Duration{15});
  Gradient sum;
  for (const int index : {3, 4, 5}) sum += engine.promise(state, 2, 7, index);
  EXPECT_EQ(several.micro_batches(), sum.micro_batches());
  EXPECT_EQ(several.compute_time(), sum.compute_time());
  ASSERT_EQ(several.terms().size(), 1u);
  EXPECT_EQ(several.terms()[0].micro_batches, sum.terms()[0].micro_batches);
  EXPECT_EQ(engine.training.values(several), engine.training.values(sum));
}

// Stale gradients among fresh ones, in any order and with any weight: each is taken at its own model.
TEST(PromisedGradients, PromisesAtSeveralModelsAreEachTakenAtTheirOwn) {
  Engine engine;
  const auto start = engine.training.initial_state();  // 1, 1, 1, 1
  const auto later = engine.at_target(start, 10);      // 10, 11, 12, 13
  const std::vector<ModelStatePtr> at = {start, later, later, start, later, start, start, later};
  const std::vector<double> weights = {1, 1, 1, 2, 2, 2, 1, 0.5};
  for (std::size_t count = 1; count <= at.size(); ++count) {
    Gradient sum;
    std::vector<double> expected(4);
    for (std::size_t k = 0; k < count; ++k) {
      const int worker = static_cast<int>(k);
      sum += engine.promise(at[k], worker) * weights[k];
      for (std::size_t i = 0; i < 4; ++i) {
        const double parameter = at[k] == start ? 1.0 : 10.0 + static_cast<double>(i);
        expected[i] += weights[k] * (parameter - PullObjective::target({Rank{worker}, 0, 0}, i));
      }
    }
    const auto found = engine.training.values(sum);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(found[i], static_cast<float>(expected[i])) << count;
  }
}

// What a shared sum has cost is what those have who are in it.
TEST(PromisedGradients, ASharedSumCountsAndCostsWhatItsPartsDo) {
  Engine engine;
  const auto state = engine.training.initial_state();
  Gradient sum;
  for (int worker = 0; worker < 3; ++worker) sum += engine.promise(state, worker);
  Gradient shared = engine.training.share(sum) / 3;
  shared += engine.promise(state, 5);
  shared = engine.training.share(shared);
  EXPECT_EQ(shared.micro_batches(), 4);
  EXPECT_EQ(shared.compute_time(), Duration{4 * 5});
  EXPECT_FALSE(shared.wide());
}

TEST(PromisedGradients, MicroBatchesAtOneStateAreFusedIntoFewCalls) {
  Engine engine;
  const auto state = engine.training.initial_state();
  Gradient sum;
  for (int worker = 0; worker < 128; ++worker) sum += engine.promise(state, worker);
  engine.training.values(engine.training.descend(state, sum, 0.1));
  EXPECT_EQ(engine.objective->evaluations, 128);
  EXPECT_EQ(engine.objective->calls, 2);  // 128 samples in chunks of at most 64
}

TEST(PromisedGradients, TheOrderOfAdditionDoesNotChangeABit) {
  std::vector<std::vector<float>> results;
  for (const bool reversed : {false, true}) {
    Engine engine(2, 0.9, 100'000);
    auto state = engine.training.initial_state();
    for (int step = 0; step < 5; ++step) {
      Gradient sum;
      for (int i = 0; i < 40; ++i) sum += engine.promise(state, reversed ? 39 - i : i, step);
      state = engine.training.descend(state, sum / 40, 0.0317);
    }
    results.push_back(engine.training.values(state));
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(PromisedGradients, LossAndNormOfAPromiseCanBeRead) {
  Engine engine;
  const auto state = engine.training.initial_state();
  Gradient sum = engine.promise(state, 0);  // 1 - (0, 1, 2, 3)
  sum += engine.promise(state, 5);          // 1 - (5, 6, 7, 8)
  const Gradient shared = engine.training.share(sum) / 2;
  EXPECT_DOUBLE_EQ(engine.training.loss(shared), ((1 + 0 + 1 + 4) / 2.0 + (16 + 25 + 36 + 49) / 2.0) / 2);
  EXPECT_NEAR(engine.training.norm(shared), std::sqrt(3 * 3 + 5 * 5 + 7 * 7 + 9 * 9) / 2, 1e-6);
  EXPECT_TRUE(std::isnan(engine.training.loss(Gradient())));
  engine.training.descend(state, shared, 0.1);
  engine.executor.wait_all();
  EXPECT_EQ(engine.objective->evaluations, 2);  // what was read is not computed again
}

// Sums of sums, as those of groups: each micro-batch counts once, whatever the weights.
TEST(PromisedGradients, TheLossOfASumOfSumsIsTheMeanOverAllMicroBatches) {
  Engine engine;
  const auto state = engine.training.initial_state();
  Gradient pair = engine.promise(state, 0);
  pair += engine.promise(state, 5);
  Gradient all = engine.training.share(pair) / 2;
  all += engine.training.share(engine.promise(state, 3)) * 0.25;
  const auto loss_of = [](double worker) {  // half the squared distance of 1 from worker + i
    double loss = 0;
    for (int i = 0; i < 4; ++i) loss += (worker + i - 1) * (worker + i - 1) / 2;
    return loss;
  };
  EXPECT_DOUBLE_EQ(engine.training.loss(all), (loss_of(0) + loss_of(5) + loss_of(3)) / 3);
  all += engine.promise(state, 2);
  EXPECT_DOUBLE_EQ(engine.training.loss(engine.training.share(all)),
                   (loss_of(0) + loss_of(5) + loss_of(3) + loss_of(2)) / 4);
}

}  // namespace
}  // namespace syncopate
