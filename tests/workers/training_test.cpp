// Steps of the training engine, and the resulting states.
#include "workers/training/training.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/workers/engine.hpp"

namespace syncopate {
namespace {

TEST(Training, OneStepFollowsTheFormula) {
  Engine engine;
  const auto state = engine.training.initial_state();
  Gradient sum;
  for (int worker = 0; worker < 3; ++worker) sum += engine.promise(state, worker, 0, 2);
  const auto values = engine.training.values(engine.training.descend(state, sum / 3, 0.5));
  for (std::size_t i = 0; i < values.size(); ++i) {
    // theta - lr x mean(theta - target). Targets are worker + 6 + i, with a mean of 1 + 6 + i.
    const double expected = 1 - 0.5 * (1 - (1 + 6 + static_cast<double>(i)));
    EXPECT_FLOAT_EQ(values[i], static_cast<float>(expected));
  }
}

TEST(Training, EqualInputsGiveTheSameStateAndOneEvaluation) {
  Engine engine;
  const auto state = engine.training.initial_state();
  Gradient sum;
  for (int worker = 0; worker < 8; ++worker) sum += engine.promise(state, worker);
  const Gradient shared = engine.training.share(sum);
  std::vector<ModelStatePtr> states;
  for (int worker = 0; worker < 8; ++worker) states.push_back(engine.training.descend(state, shared / 8, 0.1));
  for (const auto& other : states) EXPECT_EQ(other, states.front());
  EXPECT_NE(engine.training.descend(state, shared / 8, 0.2), states.front());  // a state with another learning rate
  const auto along_more = engine.training.descend(state, shared / 4, 0.1);
  EXPECT_EQ(engine.training.descend(state, shared / 4, 0.1), along_more);
  // Targets are worker + i, on average 4.5 for i = 1. The steps go from 1 towards it, by shares of 0.1 and 0.2.
  EXPECT_FLOAT_EQ(engine.training.values(states.front())[1], 1 + 0.1f * 3.5f);
  EXPECT_FLOAT_EQ(engine.training.values(along_more)[1], 1 + 0.2f * 3.5f);
  engine.executor.wait_all();
  EXPECT_EQ(engine.objective->evaluations, 8);
}

TEST(Training, ThreadsDoNotChangeABit) {
  std::vector<std::vector<float>> results;
  for (const int threads : {0, 1, 2, 4}) {
    Engine engine(threads, 0.9, 300'000, 1.0);
    std::vector<ModelStatePtr> states(3, engine.training.initial_state());
    for (int round = 0; round < 3; ++round) {
      for (int worker = 0; worker < 3; ++worker)
        for (int step = 0; step < 4; ++step) {
          const Gradient gradient = engine.promise(states[worker], worker, 4 * round + step);
          states[worker] = engine.training.descend(std::move(states[worker]), gradient, 0.0123);
        }
      states = engine.training.average(states, {});
    }
    results.push_back(engine.training.values(states[2]));
  }
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(Training, AStateThatIsStillHeldIsNotOverwritten) {
  Engine engine;
  const auto state = engine.training.initial_state();
  const auto first = engine.training.descend(state, engine.promise(state, 0), 0.5);
  engine.executor.wait_all();
  const auto before = engine.training.values(first);
  auto second = engine.training.descend(first, engine.promise(first, 1), 0.5);
  engine.executor.wait_all();
  EXPECT_EQ(engine.training.values(first), before);
  EXPECT_NE(engine.training.values(second), before);
}

TEST(Training, AStateThatNobodyHoldsIsUpdatedInPlace) {
  Engine engine(0);  // tasks run at once, so the order of releases is known
  auto state = engine.training.initial_state();
  const float* memory = state->parameters->value.data();
  state = engine.training.descend(std::move(state), Gradient(), 0.5);
  EXPECT_EQ(state->parameters->value.data(), memory);
}

TEST(Training, AStateFoundAgainThroughASharedSumIsIntact) {
  // Worker a steps along a shared gradient and goes on alone, before worker b takes the same step.
  Engine engine(0);
  const auto start = engine.training.initial_state();
  Gradient sum = engine.promise(start, 0);
  sum += engine.promise(start, 1);
  const Gradient shared = engine.training.share(sum);
  auto a = engine.training.descend(start, shared, 0.5);
  const auto expected = engine.training.values(a);
  a = engine.training.descend(std::move(a), Gradient(engine.training.gradient_from(FlatVector(4), 1)), 0.5);
  const auto b = engine.training.descend(start, shared, 0.5);
  EXPECT_EQ(engine.training.values(b), expected);
}

TEST(Training, DistanceIsThatOfTheParameters) {
  Engine engine(2, 0, 7);
  const auto start = engine.training.initial_state();
  const auto near = engine.at_target(start, 1);  // 1 + i % 5
  const auto far = engine.at_target(start, 4);
  EXPECT_DOUBLE_EQ(engine.training.distance(near, far), std::sqrt(7 * 9.0));
  // Differences from (1, ..., 1): 0, 1, 2, 3, 4, 0, 1.
  EXPECT_DOUBLE_EQ(engine.training.distance(start, near), std::sqrt(0.0 + 1 + 4 + 9 + 16 + 0 + 1));
  EXPECT_EQ(engine.training.distance(near, near), 0);
  Training time_only(nullptr, nullptr, {}, engine.executor);
  EXPECT_TRUE(std::isnan(time_only.distance(nullptr, nullptr)));
}

// An empty gradient is like an all-reduce of zeros: moments continue, and so does the count of Adam's bias correction.
TEST(Training, AStepAlongNothingIsAStepAlongZero) {
  const std::vector<std::function<std::shared_ptr<const Optimizer>()>> optimizers = {
      [] { return make_sgd({.momentum = 0.9, .weight_decay = {.rate = 0.1}}); },
      [] { return make_adamw({.weight_decay = {.rate = 0.1}}); }};
  for (const auto& make : optimizers) {
    std::vector<float> found[2];
    for (const bool is_empty : {false, true}) {
      Engine engine(std::make_shared<PullObjective>(), make());
      ModelStatePtr state = engine.training.initial_state();
      for (int step = 0; step < 5; ++step) {
        const bool is_nothing = step == 0 || step == 2 || step == 3;
        Gradient gradient = engine.promise(state, 3, step);
        if (is_nothing) gradient = is_empty ? Gradient() : gradient * 0;
        state = engine.training.descend(state, gradient, 0.05);
      }
      EXPECT_EQ(state->moments[0].age.steps, Step{5});
      found[is_empty] = engine.training.values(state);
    }
    EXPECT_EQ(found[true], found[false]);
  }
}

// The gradient's divisor has no effect. Micro-batches (worker, step, index) are (1, 0, 0), (2, 0, 1) and (6, 1, 0).
TEST(Training, StatisticsAreTheMeanOverTheMicroBatchesOfAStep) {
  for (const double divisor : {1.0, 3.0, 8.0})
    for (const bool is_shared : {false, true}) {
      Engine engine(std::make_shared<PullWithStatistics>(), make_sgd({}));
      const ModelStatePtr state = engine.training.initial_state();
      Gradient gradient = engine.promise(state, 1);
      gradient += engine.promise(state, 2, 0, 1);
      gradient += engine.promise(state, 6, 1);
      if (is_shared) gradient = engine.training.share(gradient);
      const auto next = engine.training.descend(state, gradient / divisor, 0.1);
      EXPECT_EQ(engine.values(next->buffers), (std::vector<float>{3.0f, 3.0f})) << divisor;
      const auto after_nothing = engine.training.descend(next, {}, 0.1);
      EXPECT_EQ(engine.values(after_nothing->buffers), (std::vector<float>{3.0f, 3.0f})) << divisor;
    }
}

// An objective with a statistic that each micro-batch increases by one.
struct Counting : PullObjective {
  std::size_t buffers() const override { return 1; }
  std::vector<float> initial_buffers() const override { return {10}; }
  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override {
    auto result = PullObjective::gradient(parameters, buffers, micro_batches);
    result.buffers_sum = {static_cast<float>(micro_batches.size()) * (buffers[0] + 1)};
    return result;
  }
};

TEST(Training, ModelsOfEqualParametersThatDifferInTheirStatisticsStayApart) {
  for (const bool wide : {false, true}) {
    Engine engine(std::make_shared<Counting>(), make_sgd({}));
    const auto start = engine.training.initial_state();
    const auto other = engine.at_target(start, 3);  // has the statistic 11
    const std::vector<WeightedState> alone = {{1, start}};
    const auto mixed = engine.training.combine(alone, other);
    ASSERT_EQ(mixed->parameters, start->parameters);
    Gradient gradient = engine.promise(start, 0);
    gradient += engine.promise(mixed, 0);
    if (wide) gradient.use_double_precision();
    EXPECT_EQ(engine.values(engine.training.descend(start, gradient, 0.5)->buffers), (std::vector<float>{11.5f}))
        << wide;
  }
}

// A worker that adopts a model keeps its own moments, and the number of steps in them.
TEST(Training, WhoAdoptsAModelKeepsMomentsAndSteps) {
  Engine engine(std::make_shared<PullWithStatistics>(), make_sgd({.momentum = 0.9}));
  const auto start = engine.training.initial_state();
  const auto self = engine.at_target(start, 1);
  const auto other = engine.at_target(engine.at_target(start, 2), 3);
  const auto adopted = engine.training.adopt(self, other);
  EXPECT_EQ(adopted->parameters, other->parameters);
  EXPECT_EQ(adopted->buffers, other->buffers);
  EXPECT_EQ(adopted->moments, self->moments);
  EXPECT_EQ(adopted->moments[0].age.steps, Step{1});
  EXPECT_NE(adopted->id, other->id);
  EXPECT_NE(adopted->id, self->id);
  EXPECT_EQ(engine.training.adopt(self, self), self);
}

TEST(Training, ClippingScalesToTheGlobalNorm) {
  Engine engine(2, 0, 4, 1.0);
  const auto state = engine.training.initial_state();
  const Gradient gradient = engine.promise(state, 5);  // 1 - (5, 6, 7, 8)
  const double norm = std::sqrt(16.0 + 25 + 36 + 49);
  EXPECT_NEAR(engine.training.norm(gradient), norm, 1e-5);
  const auto values = engine.training.values(engine.training.descend(state, gradient, 1.0));
  EXPECT_NEAR(values[3], 1 + 7 / norm, 1e-5);
}

}  // namespace
}  // namespace syncopate
