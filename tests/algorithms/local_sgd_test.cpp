#include "algorithms/local_sgd/local_sgd.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {
namespace {

LocalSgd every(int steps, const StatePolicies& policies = {}) {
  return LocalSgd(make_constant_period(steps), policies);
}

TEST(LocalSgd, AveragingEveryStepEqualsSynchronousSgd) {
  // Averaging is linear, so with momentum too, whether it is kept or averaged.
  for (const StatePolicy moments : {StatePolicy::keep, StatePolicy::average}) {
    SimulatedRun setup{.workers = 4, .micro_batches = 2, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 20}};
    const auto local = setup.run(every(1, {.average = {.moments = {moments, moments}}}));
    const auto synchronous = setup.run(SyncSgd());
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(local.parameters[i], synchronous.parameters[i], 1e-5 * std::abs(synchronous.parameters[i]));
  }
}

TEST(LocalSgd, FollowsTheRecursionOfEachWorker) {
  constexpr int workers = 3, period = 4, steps = 12;
  constexpr double rate = 0.1, momentum = 0.5;
  for (const StatePolicy moments : {StatePolicy::keep, StatePolicy::average, StatePolicy::reset}) {
    SimulatedRun setup{.workers = workers, .momentum = momentum, .rate = rate, .budget = {.steps = steps}};
    const auto outcome = setup.run(every(period, {.average = {.moments = {moments, moments}}}));
    for (std::size_t i = 0; i < 4; ++i) {
      std::vector<double> theta(workers, 1.0), velocity(workers, 0.0);
      for (int step = 0; step < steps; ++step) {
        for (int k = 0; k < workers; ++k) {
          velocity[k] = momentum * velocity[k] + theta[k] - PullObjective::target({Rank{k}, step, 0}, i);
          theta[k] -= rate * velocity[k];
        }
        if ((step + 1) % period != 0) continue;
        theta.assign(workers, (theta[0] + theta[1] + theta[2]) / 3);
        if (moments == StatePolicy::average) velocity.assign(workers, (velocity[0] + velocity[1] + velocity[2]) / 3);
        if (moments == StatePolicy::reset) velocity.assign(workers, 0);
      }
      EXPECT_NEAR(outcome.parameters[i], theta[0], 1e-5 * std::abs(theta[0]));
    }
  }
}

TEST(LocalSgd, WaitsOncePerPeriodForTheSlowestSum) {
  SimulatedRun setup{.budget = {.steps = 5}, .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  const auto outcome = setup.run(every(2));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 2 at 4.500 s: kept 6, dropped 0",  // 2 x 2 s of the slowest, 0.5 s to average
                             "step 4 at 9.000 s: kept 6, dropped 0",
                             "step 5 at 11.500 s: kept 3, dropped 0",  // the last round is shorter, and averaged too
                         }));
  EXPECT_EQ(outcome.rounds[0].period, Step{2});
  EXPECT_EQ(outcome.rounds[2].period, Step{1});
  EXPECT_EQ(outcome.samples, 15);
}

TEST(LocalSgd, ALongRoundEndsWithTheBudget) {
  // Alone, workers would take 20,000 steps; all end their round once their own clock passes 10 s.
  SimulatedRun setup{.budget = {.seconds = 10},
                     .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  const auto outcome = setup.run(every(20'000));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{"step 10 at 10.500 s: kept 23, dropped 0"}));  // 10 + 8 + 5 steps
  setup.budget = {.samples = 12};
  EXPECT_EQ(setup.run(every(20'000)).log.front(), "step 4 at 8.500 s: kept 12, dropped 0");
}

TEST(LocalSgd, MomentsThatAreAveragedAreSentToo) {
  SimulatedRun setup{.momentum = 0.9, .budget = {.steps = 4}};
  EXPECT_EQ(setup.run(every(2)).totals.bytes, Bytes{2 * 2 * 2 * 16});
  EXPECT_EQ(setup.run(every(2, {.average = {.moments = {StatePolicy::average, StatePolicy::average}}})).totals.bytes,
            Bytes{2 * 2 * 2 * 32});
}

// The whole path from the schedule of the learning rate to the rounds of a run.
TEST(LocalSgd, SynchronisesAtTheStepsOfTheGoldenSequences) {
  std::ifstream file(SYNCOPATE_SOURCE_DIR "/tests/golden/qsr_golden.json");
  const auto golden = nlohmann::json::parse(file);
  int cases = 0;
  for (const auto& [name, entry] : golden.items()) {
    if (!entry.contains("rle")) continue;
    const auto& config = entry["config"];
    const std::string kind = config["kind"];
    SimulatedRun setup{.workers = 2, .budget = {.steps = config["T"].get<int>()}, .objective = nullptr};
    setup.learning_rate = std::make_shared<LearningRate>(
        LearningRate::Options{.shape = kind == "cosine" ? LearningRate::Shape::cosine : LearningRate::Shape::linear,
                              .peak = config["peak"],
                              .final = config["final"],
                              .warmup_steps = config["W"].get<int>(),
                              .total_steps = config["T"].get<int>()});
    const LocalSgd algorithm(make_power_period({.power = config["power"],
                                                .coefficient = config["coef"],
                                                .minimum = config["min_h"].get<int>(),
                                                .warmup_steps = config["W"].get<int>(),
                                                .warmup_period = Step{config["init_h"].get<int>()}}),
                             {});
    std::vector<int> expected;  // the steps after which models are averaged
    for (const auto& [length, count] : entry["rle"].get<std::vector<std::pair<int, int>>>())
      for (int i = 0; i < count; ++i) expected.push_back((expected.empty() ? 0 : expected.back()) + length);
    std::vector<int> steps;
    for (const StepRow& round : setup.run(algorithm).rounds) steps.push_back(static_cast<int>(round.step.value()));
    EXPECT_EQ(steps, expected) << name;
    ++cases;
  }
  EXPECT_GE(cases, 5);
}

}  // namespace
}  // namespace syncopate
