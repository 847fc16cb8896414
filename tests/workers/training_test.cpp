#include "workers/training/training.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "tests/workers/engine.hpp"

namespace syncopate {
namespace {

TEST(Training, APromiseThatNobodyConsumesIsNeverComputed) {
  Engine engine;
  const auto state = engine.training.initial_state();
  Gradient kept = engine.promise(state, 0);
  const Gradient dropped = engine.promise(state, 1);
  engine.training.values(engine.training.descend(state, kept, 0.1));
  engine.executor.wait_all();
  EXPECT_EQ(engine.objective->evaluated, (std::set<MicroBatch>{{Rank{0}, 0, 0}}));
  EXPECT_EQ(dropped.micro_batches(), 1);
}

// Losses of 2 and 3 per sample; each fourth one is told right. Of each sample it is told which split it is of.
class CountedSamples : public PullObjective {
 public:
  using PullObjective::PullObjective;
  std::int64_t evaluation_samples(Split split) const override { return split == Split::test ? 5000 : 9000; }
  EvaluationSums evaluate(const float*, const float*, Split split, std::int64_t begin,
                          std::int64_t end) const override {
    const auto count = static_cast<double>(end - begin);
    const std::lock_guard lock(mutex_);
    std::int64_t correct = 0;
    for (auto sample = begin; sample < end; ++sample) {
      seen.insert({split, sample});
      correct += sample % 4 == 0;
    }
    return {.loss = (split == Split::test ? 2.0 : 3.0) * count, .correct = correct, .samples = end - begin};
  }
  bool has_accuracy() const override { return true; }
  mutable std::multiset<std::pair<Split, std::int64_t>> seen;

 private:
  mutable std::mutex mutex_;
};

TEST(Training, AnEvaluationTakesTheWholeTestSetAndTheTrainingSamplesThatWereAskedFor) {
  const auto objective = std::make_shared<CountedSamples>(4, 4);
  Engine engine(objective, make_sgd({}), {.train_samples = 2500});
  Evaluation result;
  engine.training.evaluate({engine.training.initial_state()},
                           [&](const Evaluation& evaluation) { result = evaluation; });
  engine.executor.wait_all();
  EXPECT_EQ(result.test_loss, 2);
  EXPECT_EQ(result.train_loss, 3);
  EXPECT_EQ(result.test_accuracy, 0.25);
  EXPECT_TRUE(result.finite);
  std::multiset<std::pair<Split, std::int64_t>> expected;
  for (int sample = 0; sample < 5000; ++sample) expected.insert({Split::test, sample});
  for (int sample = 0; sample < 2500; ++sample) expected.insert({Split::train, sample});
  EXPECT_EQ(objective->seen, expected);
}

// 3000 samples, more than one task takes, of which a tenth is told right.
class HeldOut : public CountedSamples {
 public:
  using CountedSamples::CountedSamples;
  std::int64_t validation_samples() const override { return 3000; }
  EvaluationSums evaluate(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                          std::int64_t end) const override {
    if (split != Split::validation) return CountedSamples::evaluate(parameters, buffers, split, begin, end);
    const auto samples = end - begin;
    return {.loss = 0.5 * static_cast<double>(samples), .correct = samples / 10, .samples = samples};
  }
};

TEST(Training, AnEvaluationHasTheValidationSetWhereThereIsOne) {
  const auto evaluation_of = [](const std::shared_ptr<CountedSamples>& objective) {
    Engine engine(objective, make_sgd({}), {.train_samples = 2500});
    Evaluation result;
    engine.training.evaluate({engine.training.initial_state()},
                             [&](const Evaluation& evaluation) { result = evaluation; });
    engine.executor.wait_all();
    return result;
  };
  const Evaluation with = evaluation_of(std::make_shared<HeldOut>(4, 4));
  EXPECT_EQ(with.validation_loss, 0.5);
  EXPECT_EQ(with.validation_accuracy, 0.1);
  EXPECT_EQ(with.test_loss, 2);
  EXPECT_EQ(with.train_loss, 3);
  const Evaluation without = evaluation_of(std::make_shared<CountedSamples>(4, 4));
  EXPECT_TRUE(std::isnan(without.validation_loss) && std::isnan(without.validation_accuracy));
}

struct GivenLosses : PullObjective {
  GivenLosses(double test_loss, double train_loss) : test_loss(test_loss), train_loss(train_loss) {}
  EvaluationSums evaluate(const float*, const float*, Split split, std::int64_t, std::int64_t) const override {
    return {.loss = split == Split::test ? test_loss : train_loss, .correct = 0, .samples = 1};
  }
  double test_loss, train_loss;
};

TEST(Training, AModelHasDivergedWhereEitherLossIsNoNumber) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (const double test_loss : {1.0, inf, std::nan("")})
    for (const double train_loss : {1.0, inf, std::nan("")}) {
      Engine engine(std::make_shared<GivenLosses>(test_loss, train_loss), make_sgd({}));
      Evaluation result;
      engine.training.evaluate({engine.training.initial_state()},
                               [&](const Evaluation& evaluation) { result = evaluation; });
      engine.executor.wait_all();
      EXPECT_EQ(result.finite, test_loss == 1 && train_loss == 1) << test_loss << " " << train_loss;
    }
}

TEST(Training, OneStepFollowsTheFormula) {
  Engine engine;
  const auto state = engine.training.initial_state();
  Gradient sum;
  for (int worker = 0; worker < 3; ++worker) sum += engine.promise(state, worker, 0, 2);
  const auto values = engine.training.values(engine.training.descend(state, sum / 3, 0.5));
  for (std::size_t i = 0; i < values.size(); ++i) {
    // theta - lr x mean(theta - target); targets are worker + 6 + i.
    const double expected = 1 - 0.5 * (1 - (1 + 6 + static_cast<double>(i)));
    EXPECT_FLOAT_EQ(values[i], static_cast<float>(expected));
  }
}

TEST(Training, APromiseOfSeveralMicroBatchesIsTheirSum) {
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
TEST(Training, PromisesAtSeveralModelsAreEachTakenAtTheirOwn) {
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
TEST(Training, ASharedSumCountsAndCostsWhatItsPartsDo) {
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

TEST(Training, EqualInputsGiveTheSameStateAndOneEvaluation) {
  Engine engine;
  const auto state = engine.training.initial_state();
  Gradient sum;
  for (int worker = 0; worker < 8; ++worker) sum += engine.promise(state, worker);
  const Gradient shared = engine.training.share(sum);
  std::vector<ModelStatePtr> states;
  for (int worker = 0; worker < 8; ++worker) states.push_back(engine.training.descend(state, shared / 8, 0.1));
  for (const auto& other : states) EXPECT_EQ(other, states.front());
  EXPECT_NE(engine.training.descend(state, shared / 8, 0.2), states.front());  // another rate, another state
  const auto along_more = engine.training.descend(state, shared / 4, 0.1);
  EXPECT_EQ(engine.training.descend(state, shared / 4, 0.1), along_more);
  // Targets are worker + i, 3.5 + i on average: a step of 0.1 from 1 towards them, and one of 0.2.
  EXPECT_FLOAT_EQ(engine.training.values(states.front())[1], 1 + 0.1f * 3.5f);
  EXPECT_FLOAT_EQ(engine.training.values(along_more)[1], 1 + 0.2f * 3.5f);
  engine.executor.wait_all();
  EXPECT_EQ(engine.objective->evaluations, 8);
}

TEST(Training, MicroBatchesAtOneStateAreFusedIntoFewCalls) {
  Engine engine;
  const auto state = engine.training.initial_state();
  Gradient sum;
  for (int worker = 0; worker < 128; ++worker) sum += engine.promise(state, worker);
  engine.training.values(engine.training.descend(state, sum, 0.1));
  EXPECT_EQ(engine.objective->evaluations, 128);
  EXPECT_EQ(engine.objective->calls, 2);  // 128 samples in chunks of at most 64
}

TEST(Training, TheOrderOfAdditionDoesNotChangeABit) {
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
  Engine engine(0);  // at once, so that the order of releases is known
  auto state = engine.training.initial_state();
  const float* memory = state->parameters->value.data();
  state = engine.training.descend(std::move(state), Gradient(), 0.5);
  EXPECT_EQ(state->parameters->value.data(), memory);
}

TEST(Training, AStateFoundAgainThroughASharedSumIsIntact) {
  // Worker a steps along a shared gradient and goes on alone before worker b takes the same step.
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

TEST(Training, LossAndNormOfAPromiseCanBeRead) {
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
TEST(Training, TheLossOfASumOfSumsIsTheMeanOverAllMicroBatches) {
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

TEST(Training, DistanceIsThatOfTheParameters) {
  Engine engine(2, 0, 7);
  const auto start = engine.training.initial_state();
  const auto near = engine.at_target(start, 1);  // 1 + i % 5
  const auto far = engine.at_target(start, 4);
  EXPECT_DOUBLE_EQ(engine.training.distance(near, far), std::sqrt(7 * 9.0));
  // From (1, ..., 1): 0, 1, 2, 3, 4, 0, 1.
  EXPECT_DOUBLE_EQ(engine.training.distance(start, near), std::sqrt(0.0 + 1 + 4 + 9 + 16 + 0 + 1));
  EXPECT_EQ(engine.training.distance(near, near), 0);
  Training time_only(nullptr, nullptr, {}, engine.executor);
  EXPECT_TRUE(std::isnan(time_only.distance(nullptr, nullptr)));
}

// As after an all-reduce of zeros: moments go on, and so does the count of Adam's bias correction.
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
      EXPECT_EQ(state->optimizer_steps, Step{5});
      found[is_empty] = engine.training.values(state);
    }
    EXPECT_EQ(found[true], found[false]);
  }
}

// Whatever a method divides its gradients by: micro-batches (1, 0, 0), (2, 0, 1) and (6, 1, 0).
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

// A statistic that goes up by one with each micro-batch.
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
    const auto other = engine.at_target(start, 3);  // 11
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

// What a worker adopts is a model; its moments, and how many steps they have seen, stay its own.
TEST(Training, WhoAdoptsAModelKeepsMomentsAndSteps) {
  Engine engine(std::make_shared<PullWithStatistics>(), make_sgd({.momentum = 0.9}));
  const auto start = engine.training.initial_state();
  const auto self = engine.at_target(start, 1);
  const auto other = engine.at_target(engine.at_target(start, 2), 3);
  const auto adopted = engine.training.adopt(self, other);
  EXPECT_EQ(adopted->parameters, other->parameters);
  EXPECT_EQ(adopted->buffers, other->buffers);
  EXPECT_EQ(adopted->moments, self->moments);
  EXPECT_EQ(adopted->optimizer_steps, Step{1});
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

TEST(Training, WhatFollowsAFailedTaskIsNotRun) {
  Executor executor(1);
  bool ran = false;
  const auto first = executor.submit([] { throw std::bad_alloc(); });
  try {
    const std::shared_ptr<Task> prerequisites[] = {first};
    executor.submit([&] { ran = true; }, prerequisites);
    executor.wait_all();
    FAIL() << "the failure must be seen";
  } catch (const std::bad_alloc&) {
  }
  EXPECT_FALSE(ran);
}

TEST(Training, AFailingTaskReachesTheOneWhoWaits) {
  Executor executor(2);
  executor.submit([] { throw std::runtime_error("boom"); });
  EXPECT_THROW(executor.wait_all(), std::runtime_error);
}

}  // namespace
}  // namespace syncopate
