// What single calls of Worker and Server promise a method: steps that are not the usual ones, what all derive alike,
// work until a message comes, models without moments, and gradients that are too stale to be kept.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "tests/algorithms/script.hpp"
#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {
namespace {

TEST(MethodCalls, AStepIsScaledAsItIsToldAndTheNextOneIsNot) {
  const SimulatedRun setup{.workers = 1, .rate = 0.1, .budget = {.steps = 4}};
  const auto outcome = setup.run(Script([](Worker& worker) {
    worker.descend(*worker.compute_gradient(), {.rate_factor = 0.5});
    worker.descend(*worker.compute_gradient());
    EXPECT_EQ(worker.learning_rate(), 0.1);
    worker.publish();
  }));
  double theta = 1;
  for (const double rate : {0.05, 0.1}) {
    const int step = rate == 0.05 ? 0 : 1;
    theta -= rate * (theta - PullObjective::target({Rank{0}, step, 0}, 0));
  }
  EXPECT_NEAR(outcome.parameters[0], theta, 1e-6);
  EXPECT_EQ(outcome.learning_rate, 0.1);
}

TEST(MethodCalls, AServersPublicationShowsTheRateOfItsLastStep) {
  const SimulatedRun setup{.workers = 1, .rate = 0.1, .budget = {.steps = 4}};
  const auto outcome = setup.run(Script([](Worker&) {},
                                        [](Server& server) {
                                          server.descend({}, {.rate_factor = 0.25});
                                          server.publish();
                                        }));
  EXPECT_EQ(outcome.learning_rate, 0.025);
}

TEST(MethodCalls, AnUnplannedStepIsNeitherTheBudgetsNorTheSchedules) {
  const auto falling = std::make_shared<LearningRate>(
      LearningRate::Options{.shape = LearningRate::Shape::linear, .peak = 0.8, .total_steps = Step{4}});
  const SimulatedRun setup{.workers = 1, .learning_rate = falling, .budget = {.steps = 4}};
  const auto outcome = setup.run(Script([](Worker& worker) {
    worker.descend(*worker.compute_gradient());
    worker.descend(*worker.compute_gradient(), {.is_planned = false});
    EXPECT_EQ(worker.step(), Step{2});
    EXPECT_EQ(worker.steps_left(), Step{3});
    EXPECT_NEAR(worker.learning_rate(), 0.6, 1e-12);
    worker.publish();
  }));
  EXPECT_EQ(outcome.published, Step{1});
}

TEST(MethodCalls, WhatAllDeriveFromTheSameNumbersIsDerivedOnce) {
  int derived = 0;
  const SimulatedRun setup{.workers = 5, .budget = {.steps = 3}};
  setup.run(Script([&](Worker& worker) {
    for (int round = 0; round < 3; ++round) {
      const double mine = worker.rank().value + 10.0 * round;
      const auto total = worker.all_gather({&mine, 1}, [&](std::span<const double> all) {
        ++derived;
        EXPECT_EQ(all.size(), 5u);
        return std::accumulate(all.begin(), all.end(), 0.0);
      });
      EXPECT_EQ(*total, 10 + 50.0 * round);
    }
  }));
  EXPECT_EQ(derived, 3);
}

TEST(MethodCalls, AModelIsHandedOutWithoutItsMomentsAndTheyStay) {
  const SimulatedRun setup{.workers = 1, .momentum = 0.9, .budget = {.steps = 3}};
  const auto outcome = setup.run(Script([](Worker& worker) {
    for (int s = 0; s < 3; ++s) {
      const ModelStatePtr before = worker.model();
      EXPECT_EQ(before->moments, (std::array<Moment, 2>()));  // nor with the counts of their steps
      worker.set_model(before);
      worker.descend(*worker.compute_gradient());
    }
    worker.publish();
  }));
  double theta = 1, velocity = 0;
  for (int s = 0; s < 3; ++s) {
    velocity = 0.9 * velocity + theta - PullObjective::target({Rank{0}, s, 0}, 0);
    theta -= 0.1 * velocity;
  }
  EXPECT_NEAR(outcome.parameters[0], theta, 1e-6);
}

// The server ends after 2.5 s, in the worker's third step.
TEST(MethodCalls, WhoWaitsForAMessageThatNobodyCanSendComputesOnNoFurther) {
  const SimulatedRun setup{.workers = 1, .budget = {.steps = 3}};
  int steps = 0;
  setup.run(Script(
      [&](Worker& worker) {
        while (worker.compute_step_gradient(Deadline::until_message(), Samples::in_turn)) ++steps;
        EXPECT_EQ(worker.now(), Time{from_seconds(3)});
      },
      [](Server& server) { server.receive(Time{from_seconds(2.5)}); }));
  EXPECT_EQ(steps, 3);
}

// Both gradients are of version 0, and come when the server has taken a step.
TEST(MethodCalls, AGradientThatIsStalerThanItMayBeIsDiscarded) {
  const SimulatedRun setup{.workers = 2, .network_s = 0, .budget = {.steps = 10}};
  std::vector<bool> kept;
  const auto outcome = setup.run(Script(
      [](Worker& worker) {
        worker.receive_model();
        worker.send_gradient(worker.compute_step_gradient());
      },
      [&](Server& server) {
        server.send_model(Receivers::all);
        server.descend({});
        for (const int most : {0, 1}) {
          const auto message = server.receive_until_all_left();
          ASSERT_TRUE(message);
          kept.push_back(server.accept(*message, {.maximum_staleness = Step{most}}).has_value());
        }
      }));
  EXPECT_EQ(kept, (std::vector<bool>{false, true}));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>{1, 0}));
}

}  // namespace
}  // namespace syncopate
