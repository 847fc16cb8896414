// Linear combinations of states, and the memo that lets equal ones share memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/workers/engine.hpp"
#include "tests/workers/layered_pull_objective.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;

ModelStatePtr combine(Engine& engine, const std::vector<WeightedState>& terms, const ModelStatePtr& buffers = nullptr) {
  return engine.training.combine(terms, buffers);
}

TEST(Combine, IsTheSumOfWeightTimesParameters) {
  Engine engine;
  const auto start = engine.training.initial_state();
  const auto a = engine.at_target(start, 10);  // 10 .. 13
  const auto b = engine.at_target(start, 20);
  const auto c = engine.at_target(start, 40);
  const auto mixed = combine(engine, {{1.5, a}, {-0.75, b}, {0.125, c}});
  const float first = 1.5f * 10 - 0.75f * 20 + 0.125f * 40;
  const float slope = 1.5f - 0.75f + 0.125f;
  EXPECT_THAT(engine.training.values(mixed), ElementsAre(first, first + slope, first + 2 * slope, first + 3 * slope));
  EXPECT_THAT(engine.training.values(combine(engine, {{0, a}, {2, b}})), ElementsAre(40, 42, 44, 46));
  EXPECT_THAT(engine.training.values(combine(engine, {{0, a}})), ElementsAre(0, 0, 0, 0));
}

// Large weights cancel in double precision: 3e5 and -3e5 + 1 times numbers with 24 bits.
TEST(Combine, SumsInDoublePrecision) {
  Engine engine;
  const auto start = engine.training.initial_state();
  const auto a = engine.training.descend(start, engine.promise(start, 10), 0.1);
  const auto x = engine.training.values(a);
  const auto b = engine.training.descend(start, engine.promise(start, 10), 0.1);  // the same in a cell of its own
  const auto mixed = engine.training.values(combine(engine, {{300'000.1, a}, {-299'999.1, b}}));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(mixed[i], x[i], 1e-6);
}

TEST(Combine, NothingIsComputedForAMeanOfEqualModels) {
  Engine engine;
  const auto start = engine.training.initial_state();
  const auto a = engine.at_target(start, 10);
  EXPECT_EQ(combine(engine, {{1, a}}), a);
  EXPECT_EQ(combine(engine, {{0.25, a}, {0.75, a}}), a);
  EXPECT_EQ(combine(engine, {{1, a}, {0, start}}), a);
  const auto adopted = engine.training.adopt(start, a);  // another state, the same parameters
  EXPECT_EQ(combine(engine, {{0.5, adopted}, {0.5, a}}), adopted);
  EXPECT_THAT(engine.training.values(combine(engine, {{0.5, a}, {0.25, a}})), ElementsAre(7.5, 8.25, 9, 9.75));
}

TEST(Combine, EqualInputsGiveTheSameState) {
  Engine engine;
  const auto start = engine.training.initial_state();
  const auto a = engine.at_target(start, 10);
  const auto b = engine.at_target(start, 20);
  const auto mixed = combine(engine, {{0.5, a}, {0.5, b}});
  EXPECT_EQ(combine(engine, {{0.5, a}, {0.5, b}}), mixed);
  EXPECT_NE(combine(engine, {{0.5, a}, {0.25, b}}), mixed);
  EXPECT_NE(combine(engine, {{0.5, b}, {0.5, a}}), mixed);  // the moments of b
  EXPECT_NE(combine(engine, {{0.5, a}, {0.5, engine.training.adopt(start, b)}}), mixed);
}

// Four tensors of 2, 4, 1 and 1 elements.
struct Layered {
  Engine engine{std::make_shared<LayeredPullObjective>(), make_sgd({})};
  ModelStatePtr start = engine.training.initial_state();
  ModelStatePtr a = engine.at_target(start, 10);  // 10 11 12 13 14 10 11 12
  ModelStatePtr b = engine.at_target(start, 30);  // 20 more

  ModelStatePtr combine(const std::vector<double>& shares) { return engine.training.combine_tensors(a, b, shares); }
};

TEST(Combine, EachTensorHasAShareOfItsOwn) {
  Layered of;
  EXPECT_THAT(of.engine.training.values(of.combine({0.25, 0, 1, 4})), ElementsAre(15, 16, 12, 13, 14, 10, 31, 92));
  EXPECT_THAT(of.engine.training.values(of.combine({0.5})), ElementsAre(20, 21, 22, 23, 24, 20, 21, 22));
  EXPECT_EQ(of.combine({1, 1, 1, 1}), of.b);
  EXPECT_EQ(of.combine({0, 0, 0, 0}), of.a);
  EXPECT_EQ(of.combine({0}), of.a);
  const auto mixed = of.combine({0.25, 0, 1, 4});
  EXPECT_EQ(of.combine({0.25, 0, 1, 4}), mixed);
  EXPECT_NE(of.combine({0.25, 0, 1, 3}), mixed);
  const auto adopted = of.engine.training.adopt(of.start, of.a);  // the same parameters
  EXPECT_EQ(of.engine.training.combine_tensors(of.a, adopted, std::vector(4, 0.3)), adopted);
}

TEST(Combine, ATensorOfShareZeroHasNothingOfTheOther) {
  Layered of;
  const auto nowhere = of.engine.training.descend(of.start, of.engine.promise(of.start, 0), NAN);
  const std::vector<double> shares = {0, 1, 0, 0};
  const auto values = of.engine.training.values(of.engine.training.combine_tensors(of.a, nowhere, shares));
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(std::isnan(values[i]), i >= 2 && i < 6);
}

TEST(Combine, DistancesAreThoseOfEachTensor) {
  Layered of;
  const auto distances = of.engine.training.distances(of.a, of.combine({0.25, 0, 1, 4}));
  ASSERT_EQ(distances.size(), 4u);
  EXPECT_DOUBLE_EQ(distances[0], 5 * std::sqrt(2));
  EXPECT_THAT(std::vector(distances.begin() + 1, distances.end()), ElementsAre(0, 20, 80));
}

// What is no parameter comes from the second, unless nothing of it is wanted.
TEST(Combine, BuffersGoWithThatOfWhichThereIsAShare) {
  Engine engine(std::make_shared<PullWithStatistics>(), make_sgd({}));
  const auto start = engine.training.initial_state();
  const auto moved = engine.at_target(start, 7);
  EXPECT_EQ(engine.training.combine_tensors(start, moved, std::vector{0.5})->buffers, moved->buffers);
  EXPECT_EQ(engine.training.combine_tensors(start, moved, std::vector{0.0})->buffers, start->buffers);
}

TEST(Combine, AResultThatNobodyHoldsIsFreed) {
  Engine engine(0);
  const auto start = engine.training.initial_state();
  const auto a = engine.at_target(start, 10);
  auto mixed = combine(engine, {{0.5, a}, {0.5, start}});
  const std::weak_ptr<Cell> parameters = mixed->parameters;
  mixed = nullptr;
  EXPECT_TRUE(parameters.expired());
  EXPECT_EQ(engine.training.values(combine(engine, {{0.5, a}, {0.5, start}}))[0], 5.5f);
}

TEST(Combine, AResultIsSteppedFromInPlace) {
  Engine engine(0);
  const auto start = engine.training.initial_state();
  const auto a = engine.at_target(start, 10);
  auto mixed = combine(engine, {{0.5, a}, {0.5, start}});
  const float* const memory = mixed->parameters->value.data();
  const auto next = engine.training.descend(std::move(mixed), Gradient(engine.promise(a, 3)), 0.5);
  EXPECT_EQ(next->parameters->value.data(), memory);
}

TEST(Combine, AResultThatAStepMayOverwriteIsNotFoundAgain) {
  Engine engine(1);
  const auto start = engine.training.initial_state();
  const auto a = engine.at_target(start, 10);
  Blockade blockade(engine.executor);
  auto mixed = combine(engine, {{0.5, a}, {0.5, start}});
  const auto id = mixed->id;
  const auto next = engine.training.descend(std::move(mixed), Gradient(engine.promise(a, 3)), 0.5);
  const auto again = combine(engine, {{0.5, a}, {0.5, start}});  // the step still holds the other
  EXPECT_NE(again->id, id);
  EXPECT_EQ(combine(engine, {{0.5, a}, {0.5, start}}), again);
  blockade.release();
  EXPECT_THAT(engine.training.values(again), ElementsAre(5.5, 6, 6.5, 7));
}

TEST(Combine, MomentsAndStepsAreThoseOfTheFirstTerm) {
  Engine engine(2, 0.9);
  const auto start = engine.training.initial_state();
  const auto a = engine.at_target(start, 10);
  const auto b = engine.at_target(a, 20);
  const auto mixed = combine(engine, {{0.5, b}, {0.5, a}});
  EXPECT_EQ(mixed->moments, b->moments);
  EXPECT_EQ(mixed->moments[0].age.steps, Step{2});
}

TEST(Combine, BuffersAreCombinedLikewiseOrThoseOfAnotherState) {
  Engine engine(std::make_shared<PullWithStatistics>(4, 4), make_sgd({}));
  const auto start = engine.training.initial_state();
  const auto a = engine.training.descend(start, engine.promise(start, 10, 1), 1.0);  // statistics (10, 8)
  const auto b = engine.training.descend(start, engine.promise(start, 20, 2), 1.0);  // (20, 16)
  EXPECT_THAT(engine.values(combine(engine, {{0.75, a}, {0.25, b}})->buffers), ElementsAre(12.5, 10));
  const auto extrapolated = combine(engine, {{2, a}, {-1, b}}, b);
  EXPECT_EQ(extrapolated->buffers, b->buffers);
  EXPECT_EQ(combine(engine, {{2, a}, {-1, b}}, b), extrapolated);
  EXPECT_NE(combine(engine, {{2, a}, {-1, b}}, a), extrapolated);
  EXPECT_NE(combine(engine, {{2, a}, {-1, b}}), extrapolated);
  const auto mixed = combine(engine, {{1, a}}, b);
  EXPECT_EQ(mixed->parameters, a->parameters);
  EXPECT_EQ(mixed->buffers, b->buffers);
}

TEST(Combine, AMovingAverageFollowsTheFormula) {
  constexpr double decay = 0.9;
  constexpr int steps = 60;
  Engine engine(2, 0, 200'000);  // several ranges
  auto model = engine.training.initial_state();
  auto average = model;
  double expected = 1;
  for (int step = 0; step < steps; ++step) {
    const auto gradient = engine.promise(model, step);
    model = engine.training.descend(std::move(model), gradient, 1.0);  // at the target, step + 10 (step % 7)
    average = combine(engine, {{decay, average}, {1 - decay, model}});
    expected = decay * expected + (1 - decay) * step;
  }
  const auto values = engine.training.values(average);
  const double arrived = 1 - std::pow(decay, steps);  // what of the targets' i % 5 has come in
  for (const std::size_t i : {0, 65'535, 133'333, 199'999})
    EXPECT_NEAR(values[i], expected + static_cast<double>(i % 5) * arrived, 2e-4);
}

// Workers that pull at a common centre and step on, on any number of threads: in place or not, found again or
// not, the bits are the same.
TEST(Combine, ThreadsDoNotChangeABit) {
  std::vector<std::vector<float>> results;
  for (const int threads : {0, 1, 2, 4}) {
    Engine engine(threads, 0.9, 150'000);
    auto centre = engine.training.initial_state();
    std::vector<ModelStatePtr> models(4, centre);
    for (int round = 0; round < 20; ++round)
      for (int worker = 0; worker < 4; ++worker) {
        auto& model = models[static_cast<std::size_t>(worker)];
        const auto moved = combine(engine, {{0.9, centre}, {0.1, model}});
        model = combine(engine, {{0.9, model}, {0.1, centre}});
        centre = moved;
        if (round % 3 != 0) continue;
        const auto gradient = engine.promise(model, worker, round);
        model = engine.training.descend(std::move(model), gradient, 0.0173);
      }
    results.push_back(engine.training.values(centre));
    for (const auto& model : models) results.back().push_back(engine.training.values(model)[77'777]);
  }
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(Combine, TimeOnlyRunsHaveNoModel) {
  Executor executor(0);
  Training training(nullptr, nullptr, {}, executor);
  EXPECT_EQ(training.combine(std::vector<WeightedState>{{0.5, nullptr}, {0.5, nullptr}}), nullptr);
}

TEST(Memo, ForgetsWhatNobodyHolds) {
  Memo<int> memo;
  const auto kept = std::make_shared<int>(7);
  memo.remember({{1, 0.5}}, kept);
  for (std::uint64_t id = 2; id < 10'000; ++id) memo.remember({{id, 0.5}}, std::make_shared<int>(0));
  EXPECT_LE(memo.size(), 64u);
  EXPECT_EQ(memo.find({{1, 0.5}}), kept);
  EXPECT_EQ(memo.find({{1, 0.25}}), nullptr);
  EXPECT_EQ(memo.find({{9'999, 0.5}}), nullptr);
}

TEST(Memo, KeepsWhatIsHeldHoweverMuch) {
  Memo<int> memo;
  std::vector<std::shared_ptr<int>> held;
  for (std::uint64_t id = 0; id < 1000; ++id) memo.remember({{id, 1.0}}, held.emplace_back(std::make_shared<int>(0)));
  for (std::uint64_t id = 0; id < 1000; ++id) EXPECT_EQ(memo.find({{id, 1.0}}), held[id]);
}

}  // namespace
}  // namespace syncopate
