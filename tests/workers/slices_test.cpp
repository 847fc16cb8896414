// Steps on slices of a model, which several servers take, and whole models that are assembled from slices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/workers/engine.hpp"

namespace syncopate {
namespace {

TEST(Slices, CoverAVectorWithoutGapsOrOverlaps) {
  for (const std::size_t size : {0, 1, 5, 23, 1'000'000'007})
    for (const int count : {1, 2, 3, 7, 64}) {
      std::size_t next = 0;
      for (int index = 0; index < count; ++index) {
        const Slice slice{index, count};
        EXPECT_EQ(slice.begin(size), next);
        next = slice.end(size);
        EXPECT_NEAR(static_cast<double>(next - slice.begin(size)), static_cast<double>(size) / count, 1);
      }
      EXPECT_EQ(next, size);
    }
}

Gradient shared_gradient(Engine& engine, const ModelStatePtr& model, int step) {
  Gradient gradient = engine.promise(model, 0, step);
  gradient += engine.promise(model, 5, step);
  return engine.training.share(gradient) / 2;
}

// Each server steps its slice along the same gradients. Together the slices equal the result of one server, which has
// an engine of its own here.
void expect_whole_step(std::size_t size, std::size_t weights, int servers,
                       const std::shared_ptr<const Optimizer>& optimizer) {
  SCOPED_TRACE(testing::Message() << size << " parameters on " << servers << " servers");
  Engine alone(std::make_shared<PullObjective>(size, weights), optimizer);
  Engine engine(std::make_shared<PullObjective>(size, weights), optimizer);
  auto whole = alone.training.initial_state();
  auto model = engine.training.initial_state();
  std::vector<ModelStatePtr> slices(static_cast<std::size_t>(servers), model);
  for (int step = 0; step < 4; ++step) {
    const Gradient gradient = shared_gradient(engine, model, step);
    for (int index = 0; index < servers; ++index) {
      auto& slice = slices[static_cast<std::size_t>(index)];
      slice = engine.training.descend(std::move(slice), gradient, 0.0317, {.slice = {index, servers}});
    }
    model = engine.training.assemble(model, slices);
    whole = alone.training.descend(whole, shared_gradient(alone, whole, step), 0.0317);
    ASSERT_EQ(engine.training.values(model), alone.training.values(whole)) << "step " << step;
  }
}

TEST(Slices, StepsOnSlicesMakeTheWholeStep) {
  // Weights, which decay, end at 9. This border is within a slice or between two.
  const WeightDecay decay{.rate = 0.3, .scope = DecayScope::weights};
  for (const int servers : {1, 2, 3, 5, 23, 30}) {
    expect_whole_step(23, 9, servers, make_sgd({.momentum = 0.9, .nesterov = true, .weight_decay = decay}));
    expect_whole_step(23, 9, servers, make_adamw({.weight_decay = decay}));
    expect_whole_step(300'000, 100'003, servers, make_sgd({.momentum = 0.9, .weight_decay = decay}));
  }
}

TEST(Slices, TheRestOfTheVectorIsNotWritten) {
  Engine engine(0);
  auto state = engine.training.initial_state();
  const auto gradient = engine.promise(state, 10);  // targets 10 .. 13
  const float* const memory = state->parameters->value.data();
  state = engine.training.descend(std::move(state), Gradient(gradient), 1.0, {.slice = {1, 2}});
  ASSERT_NE(state->parameters->value.data(), memory);  // the gradient still holds the old state
  const auto next = engine.training.descend(std::move(state), Gradient(), 1.0, {.slice = {0, 2}});
  EXPECT_EQ(next->parameters->value.data()[2], 12.0f);
  EXPECT_EQ(next->parameters->value.data()[3], 13.0f);
}

TEST(Slices, ClippingIsByTheNormOfTheSlice) {
  Engine engine(2, 0, 4, 1.0);
  const auto state = engine.training.initial_state();
  const Gradient gradient = engine.promise(state, 5);  // 1 - (5, 6, 7, 8)
  std::vector<ModelStatePtr> slices;
  for (int index = 0; index < 2; ++index)
    slices.push_back(engine.training.descend(state, gradient, 1.0, {.slice = {index, 2}}));
  const auto values = engine.training.values(engine.training.assemble(state, slices));
  EXPECT_NEAR(values[0], 1 + 4 / std::sqrt(16.0 + 25), 1e-5);
  EXPECT_NEAR(values[3], 1 + 7 / std::sqrt(36.0 + 49), 1e-5);
}

TEST(Slices, EqualInputsShareParametersAndKeepTheirOwnMoments) {
  Engine engine(2, 0.9);
  const auto start = engine.training.initial_state();
  const std::vector<ModelStatePtr> servers = {engine.at_target(start, 10), engine.at_target(start, 20)};
  const std::vector<ModelStatePtr> workers = {engine.at_target(start, 1), engine.at_target(start, 2)};
  const auto first = engine.training.assemble(workers[0], servers);
  const auto second = engine.training.assemble(workers[1], servers);
  EXPECT_EQ(first->parameters, second->parameters);
  EXPECT_EQ(first->moments, workers[0]->moments);
  EXPECT_EQ(second->moments, workers[1]->moments);
  const auto later = engine.training.assemble(engine.at_target(workers[0], 3), servers);
  EXPECT_EQ(later->moments[0].age.steps, Step{2});
  EXPECT_EQ(first->moments[0].age.steps, Step{1});
  EXPECT_THAT(engine.training.values(first), testing::ElementsAre(10, 11, 22, 23));
  const std::vector<ModelStatePtr> swapped = {servers[1], servers[0]};
  EXPECT_THAT(engine.training.values(engine.training.assemble(workers[0], swapped)),
              testing::ElementsAre(20, 21, 12, 13));
}

TEST(Slices, AnAssembledModelIsSteppedFromInPlaceAndNotKept) {
  Engine engine(0);
  const auto start = engine.training.initial_state();
  const std::vector<ModelStatePtr> servers = {engine.at_target(start, 10), engine.at_target(start, 20)};
  auto model = engine.training.assemble(start, servers);
  const std::weak_ptr<Cell> parameters = model->parameters;
  const float* const memory = model->parameters->value.data();
  model = engine.training.descend(std::move(model), Gradient(engine.promise(start, 1)), 0.5);
  EXPECT_EQ(model->parameters->value.data(), memory);
  EXPECT_TRUE(parameters.expired());
}

TEST(Slices, AnAssembledModelThatAStepMayOverwriteIsNotFoundAgain) {
  Engine engine(1);
  const auto start = engine.training.initial_state();
  const std::vector<ModelStatePtr> servers = {engine.at_target(start, 10), engine.at_target(start, 20)};
  Blockade blockade(engine.executor);
  auto model = engine.training.assemble(start, servers);
  const Cell* const first = model->parameters.get();
  model = engine.training.descend(std::move(model), Gradient(engine.promise(start, 1)), 0.5);
  const auto again = engine.training.assemble(start, servers);
  EXPECT_NE(again->parameters.get(), first);  // the step still holds the first assembled model
  blockade.release();
  EXPECT_THAT(engine.training.values(again), testing::ElementsAre(10, 11, 22, 23));
}

TEST(Slices, BuffersAreThoseOfTheFirstSlice) {
  Engine engine(std::make_shared<PullWithStatistics>(4, 4), make_sgd({}));
  const auto start = engine.training.initial_state();
  const std::vector<ModelStatePtr> servers = {engine.at_target(start, 10), engine.at_target(start, 20)};
  EXPECT_EQ(engine.training.assemble(start, servers)->buffers, servers[0]->buffers);
}

TEST(Slices, OfAnotherModelStandInOne) {
  Engine engine(0);
  const auto start = engine.training.initial_state();
  const auto whole = engine.at_target(start, 10), part = engine.at_target(start, 20);
  const auto second = engine.training.with_slice(whole, part, {1, 2});
  EXPECT_THAT(engine.training.values(second), testing::ElementsAre(10, 11, 22, 23));
  EXPECT_EQ(second->moments, whole->moments);
  EXPECT_EQ(second->buffers, whole->buffers);
  EXPECT_EQ(engine.training.with_slice(whole, part, {1, 2}), second);
  EXPECT_THAT(engine.training.values(engine.training.with_slice(whole, part, {0, 2})),
              testing::ElementsAre(20, 21, 12, 13));
  EXPECT_THAT(engine.training.values(engine.training.with_slice(whole, part, {1, 4})),
              testing::ElementsAre(10, 21, 12, 13));
  EXPECT_EQ(engine.training.with_slice(whole, part, {0, 1})->parameters, part->parameters);
  EXPECT_EQ(engine.training.with_slice(whole, whole, {1, 2}), whole);
}

TEST(Slices, OfSeveralModelsAreAveragedAlone) {
  Engine engine(0);
  const auto start = engine.training.initial_state();
  const std::vector<ModelStatePtr> states = {engine.at_target(start, 10), engine.at_target(start, 20)};
  const auto means = engine.training.average(states, {}, {}, {1, 2});
  EXPECT_THAT(engine.training.values(means[0]), testing::ElementsAre(10, 11, 17, 18));
  EXPECT_EQ(means[0]->parameters, means[1]->parameters);
}

TEST(Slices, EqualModelsNeedNoCopy) {
  Engine engine;
  const auto start = engine.training.initial_state();
  const auto other = engine.at_target(start, 1);
  const std::vector<ModelStatePtr> same(3, other);
  EXPECT_EQ(engine.training.assemble(start, same)->parameters, other->parameters);
  Training time_only(nullptr, nullptr, {}, engine.executor);
  EXPECT_EQ(time_only.assemble(nullptr, std::vector<ModelStatePtr>(2)), nullptr);
}

}  // namespace
}  // namespace syncopate
