// Outer optimizers inside Local SGD.
#include "algorithms/local_sgd/outer_optimizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

OuterLocalSgd with(OuterOptimizer outer, int period, const StatePolicies& policies = {}) {
  return OuterLocalSgd(make_constant_period(period), std::move(outer), policies);
}

// 3 rounds of 4 local steps at a learning rate that falls at every step.
constexpr int workers = 3, period = 4, rounds = 3;
SimulatedRun falling_rate() {
  SimulatedRun setup{.workers = workers, .budget = {.steps = rounds * period}};
  setup.learning_rate = std::make_shared<LearningRate>(
      LearningRate::Options{.shape = LearningRate::Shape::linear, .peak = 0.2, .total_steps = rounds * period});
  return setup;
}
double rate_at(int step) { return 0.2 * (rounds * period - step) / (rounds * period); }

// Parameter i in double precision. `outer` gives the next model from the last one, the average and the mean rate.
using Outer = std::function<double(double last, double average, double rate)>;
double recursion(std::size_t i, const Outer& outer) {
  double model = 1;
  for (int round = 0; round < rounds; ++round) {
    double average = 0, rates = 0;
    for (int k = 0; k < workers; ++k) {
      double theta = model;
      for (int step = round * period; step < (round + 1) * period; ++step)
        theta -= rate_at(step) * (theta - PullObjective::target({Rank{k}, step, 0}, i));
      average += theta / workers;
    }
    for (int step = round * period; step < (round + 1) * period; ++step) rates += rate_at(step);
    model = outer(model, average, rates / period);
  }
  return model;
}

void expect_recursion(const Algorithm& algorithm, const std::function<Outer()>& outer) {
  const auto outcome = falling_rate().run(algorithm);
  for (std::size_t i = 0; i < 4; ++i) {
    const double expected = recursion(i, outer());
    EXPECT_NEAR(outcome.parameters[i], expected, 1e-5 * std::abs(expected)) << i;
  }
}

TEST(OuterOptimizer, APlainStepOfRateOneEqualsLocalSgdBitForBit) {
  const SimulatedRun setup{.workers = 4, .micro_batches = 2, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 10}};
  EXPECT_EQ(setup.run(with(make_plain_outer(1), 3)).parameters,
            setup.run(LocalSgd(make_constant_period(3), {})).parameters);
}

TEST(OuterOptimizer, SlowMoWithoutMomentumEqualsLocalSgd) {
  const SimulatedRun setup{.workers = 4, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 10}};
  const auto slowmo = setup.run(with(make_slowmo(1, 0), 3)).parameters;
  const auto local = setup.run(LocalSgd(make_constant_period(3), {})).parameters;
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(slowmo[i], local[i], 1e-5 * std::abs(local[i]));
}

TEST(OuterOptimizer, DiLoCoWithoutMomentumEqualsThePlainStep) {
  const SimulatedRun setup{.workers = 4, .rate = 0.05, .budget = {.steps = 10}};
  EXPECT_EQ(setup.run(with(make_diloco(1, 0), 3)).parameters, setup.run(with(make_plain_outer(1), 3)).parameters);
  const auto diloco = setup.run(with(make_diloco(0.5, 0), 3)).parameters;
  const auto plain = setup.run(with(make_plain_outer(0.5), 3)).parameters;
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(diloco[i], plain[i], 1e-5 * std::abs(plain[i]));
}

TEST(OuterOptimizer, APlainStepGoesPartOfTheWayOrBeyond) {
  for (const double outer_rate : {0.3, 1.0, 1.7})
    expect_recursion(with(make_plain_outer(outer_rate), period), [=] {
      return [=](double last, double average, double) { return (1 - outer_rate) * last + outer_rate * average; };
    });
}

TEST(OuterOptimizer, SlowMoFollowsTheRecursion) {
  expect_recursion(with(make_slowmo(0.9, 0.6), period), [] {
    return [u = 0.0](double last, double average, double rate) mutable {
      u = 0.6 * u + (last - average) / rate;
      return last - 0.9 * rate * u;
    };
  });
}

// The rule of torch.optim.SGD, computed by torch.
TEST(OuterOptimizer, DiLoCoFollowsTorchsNesterovMomentum) {
  expect_recursion(with(make_diloco(0.7, 0.9), period), [] {
    auto x = torch::ones({1}, torch::kDouble);
    auto sgd =
        std::make_shared<torch::optim::SGD>(std::vector{x}, torch::optim::SGDOptions(0.7).momentum(0.9).nesterov(true));
    return [x, sgd](double last, double average, double) mutable {
      x.mutable_grad() = torch::full({1}, last - average, torch::kDouble);
      sgd->step();
      return x.item<double>();
    };
  });
}

// A round has 3 steps of 1 s, and 0.5 s for an average. At 5 s the second round is cut short after two steps, at the
// constant learning rate.
TEST(OuterOptimizer, ARoundThatABudgetOfSecondsCutsShortIsThatOfSoManySteps) {
  for (const auto& outer : {OuterOptimizer(make_slowmo(1, 0.5)), OuterOptimizer(make_diloco(0.7, 0.5))}) {
    const OuterLocalSgd method(make_constant_period(3), outer, {});
    const auto by_seconds = SimulatedRun{.budget = {.seconds = 5}}.run(method);
    const auto by_steps = SimulatedRun{.budget = {.steps = 5}}.run(method);
    EXPECT_EQ(by_seconds.published, Step{5});
    EXPECT_EQ(by_seconds.parameters, by_steps.parameters);
  }
}

TEST(OuterOptimizer, AtRateZeroNothingMoves) {
  SimulatedRun setup{.rate = 0, .budget = {.steps = 6}};
  const std::vector<float> initial(4, 1.0f);
  EXPECT_EQ(setup.run(with(make_slowmo(1, 0.9), 2)).parameters, initial);
  EXPECT_EQ(setup.run(with(make_diloco(0.7, 0.9), 2)).parameters, initial);
  // In a warm-up from 0 the first round's mean rate is small but not 0, and nothing explodes.
  setup.learning_rate =
      std::make_shared<LearningRate>(LearningRate::Options{.peak = 0.1, .final = 0, .warmup_steps = 2});
  for (const float value : setup.run(with(make_slowmo(1, 0.5), 2)).parameters) EXPECT_LT(std::abs(value), 100);
}

TEST(OuterOptimizer, TheOuterStepTakesNoTimeAndSendsNothing) {
  const SimulatedRun setup{.budget = {.steps = 5},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  const auto outcome = setup.run(with(make_diloco(0.7, 0.9), 2));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 2 at 4.500 s: kept 6, dropped 0",  // 2 x 2 s of worker 2, 0.5 s for an average
                             "step 4 at 9.000 s: kept 6, dropped 0",
                             "step 5 at 11.500 s: kept 3, dropped 0",
                         }));
  EXPECT_EQ(outcome.totals.bytes, Bytes{3 * 2 * 2 * 16});
  EXPECT_EQ(outcome.samples, 15);
}

TEST(OuterOptimizer, NeedsNoModelForTheTimesAlone) {
  SimulatedRun setup{.budget = {.steps = 4}, .objective = nullptr};
  for (const auto& make : {make_slowmo, make_diloco})
    EXPECT_EQ(
        setup.run(with(make(0.5, 0.9), 2)).log,
        (std::vector<std::string>{"step 2 at 2.500 s: kept 6, dropped 0", "step 4 at 5.000 s: kept 6, dropped 0"}));
}

TEST(OuterOptimizer, InnerMomentsFollowTheirPolicy) {
  const SimulatedRun setup{.momentum = 0.9, .budget = {.steps = 4}};
  const StatePolicies reset{.average = {.moments = {StatePolicy::reset, StatePolicy::reset}}};
  EXPECT_EQ(setup.run(with(make_plain_outer(1), 2, reset)).parameters,
            setup.run(LocalSgd(make_constant_period(2), reset)).parameters);
}

std::string method(const std::string& outer) {
  return "algorithm = \"outer-local-sgd\"\nperiod = { rule = \"constant\", steps = 3 }\nouter = " + outer;
}

TEST(OuterOptimizerSettings, EveryRowCanBeWritten) {
  const SimulatedRun setup{.workers = 4, .rate = 0.05, .budget = {.steps = 7}};
  const auto outcome = [&](const std::string& outer) {
    const auto reading = read_method(method(outer));
    EXPECT_EQ(reading.faults, "");
    return setup.run(*reading.algorithm).parameters;
  };
  EXPECT_EQ(outcome(R"({ name = "plain" })"), setup.run(with(make_plain_outer(1), 3)).parameters);
  EXPECT_EQ(outcome(R"({ name = "plain", rate = 0.5 })"), setup.run(with(make_plain_outer(0.5), 3)).parameters);
  EXPECT_EQ(outcome(R"({ name = "slowmo", momentum = 0.5 })"), setup.run(with(make_slowmo(1, 0.5), 3)).parameters);
  EXPECT_EQ(outcome(R"({ name = "slowmo", rate = 0.8, momentum = 0.5 })"),
            setup.run(with(make_slowmo(0.8, 0.5), 3)).parameters);
  EXPECT_EQ(outcome(R"({ name = "diloco", rate = 0.7, momentum = 0.9 })"),
            setup.run(with(make_diloco(0.7, 0.9), 3)).parameters);
  EXPECT_EQ(outcome(R"({ name = "heavy-ball", momentum = 0.5 })"),
            setup.run(with(make_heavy_ball(1, 0.5), 3)).parameters);
  EXPECT_EQ(outcome(R"({ name = "heavy-ball", rate = 0.8, momentum = 0.5 })"),
            setup.run(with(make_heavy_ball(0.8, 0.5), 3)).parameters);
  EXPECT_EQ(outcome(R"({ name = "yogi", rate = 0.05, beta1 = 0.8, beta2 = 0.9, tau = 0.1 })"),
            setup.run(with(make_adaptive_outer({AdaptiveOuter::Second::yogi, 0.05, 0.8, 0.9, 0.1}), 3)).parameters);
  EXPECT_EQ(outer_optimizers().size(), 7u);
}

TEST(OuterOptimizerSettings, FaultsNameTheKey) {
  EXPECT_THAT(read_method(method(R"({ name = "dilocco", rate = 1 })")).faults,
              AllOf(HasSubstr("dilocco"), HasSubstr("diloco"), HasSubstr("slowmo")));
  EXPECT_THAT(read_method(method(R"({ name = "diloco", rate = 0, momentum = 1 })")).faults,
              AllOf(HasSubstr("rate = 0"), HasSubstr("momentum = 1")));
  const std::string misspelt = read_method(method(R"({ name = "dilocco", rate = 1 })")).faults;
  EXPECT_EQ(std::ranges::count(misspelt, '\n'), 0) << misspelt;  // further faults would follow from the name
  for (const std::string name : {"plain", "slowmo", "diloco", "heavy-ball"})
    EXPECT_THAT(read_method(method("{ name = \"" + name + "\", rate = inf, momentum = 0.5 }")).faults,
                HasSubstr("rate = inf; must be"));
  EXPECT_THAT(read_method(method(R"({ name = "plain", momentum = 0.5 })")).faults, HasSubstr("momentum"));
  EXPECT_THAT(read_method("algorithm = \"outer-local-sgd\"\nperiod = { rule = \"constant\", steps = 0 }").faults,
              AllOf(HasSubstr("steps = 0"), HasSubstr("name")));
}

}  // namespace
}  // namespace syncopate
