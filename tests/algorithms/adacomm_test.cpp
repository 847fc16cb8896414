#include "algorithms/local_sgd/adacomm.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "workers/base/process.hpp"
#include "workers/models/formulas.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using NotBelow = LossPeriod::NotBelow;

std::vector<std::int64_t> steps_of(const SimulatedRun::Outcome& outcome) {
  std::vector<std::int64_t> steps;
  for (const StepRow& round : outcome.rounds) steps.push_back(round.step.value());
  return steps;
}

struct ConstantLoss : PullObjective {
  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override {
    PartialGradient result = PullObjective::gradient(parameters, buffers, micro_batches);
    result.loss_sum = 0.7 * static_cast<double>(micro_batches.size());
    return result;
  }
};

TEST(AdaComm, OfAConstantLossEqualsLocalSgdWithTheFirstPeriodBitForBit) {
  SimulatedRun setup{.workers = 4, .micro_batches = 2, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 22}};
  setup.objective = std::make_shared<ConstantLoss>();
  const auto expected = setup.run(LocalSgd(make_constant_period(4), {}));
  for (const bool follows_rate : {false, true})
    for (const NotBelow not_below : {NotBelow::take, NotBelow::keep}) {
      const LossPeriod period{.initial = 4, .follows_rate = follows_rate, .not_below = not_below};
      for (const LossPeriodOptions& options :
           {LossPeriodOptions{.period = period}, LossPeriodOptions{.period = period, .interval_steps = 5},
            LossPeriodOptions{.period = period, .interval_s = 6.0}}) {
        const auto found = setup.run(AdaComm(options));
        EXPECT_EQ(found.parameters, expected.parameters);
        EXPECT_EQ(steps_of(found), steps_of(expected));
      }
    }
}

TEST(AdaComm, ByTheRateIsAsIfTheLossRose) {
  SimulatedRun setup{.budget = {.steps = 30}};
  setup.objective = std::make_shared<ConstantLoss>();
  setup.learning_rate = std::make_shared<LearningRate>(LearningRate::Options{
      .shape = LearningRate::Shape::step, .peak = 0.4, .decay_steps = {Step{8}, Step{16}}, .decay_factor = 0.25});
  const LossPeriod period{.initial = 4, .follows_rate = true};
  EXPECT_THAT(steps_of(setup.run(AdaComm({.period = period}))), ElementsAre(4, 8, 16, 30));  // periods 4, 4, 8, 16
}

// The loss is 1/2 |theta - theta*|^2 without noise. At a rate of 0.1, n steps multiply the root of the loss by 0.9^n.
SimulatedRun bowl(Budget budget) {
  SimulatedRun setup{
      .rate = 0.1, .budget = budget, .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  setup.objective = std::make_shared<Quadratic>(QuadraticOptions{.dimension = 4, .condition = 1, .noise = 0}, 3);
  return setup;
}

// The n-th step's gradient measures the loss, after n - 1 updates. So the root of the loss is 0.9^(n - 1) of the first.
// The first period, 4, times this ratio is 2.92, 2.13, 1.55, 1.26, 1.02, 0.82, ..., and is rounded up. The slowest
// worker takes 2 s a step. Averages and gatherings of losses take 0.5 s each. No losses are gathered after the last
// average.
TEST(AdaComm, ShortensItsRoundsAsTheLossFalls) {
  const auto outcome = bowl({.steps = 18}).run(AdaComm({.period = {.initial = 4}}));
  EXPECT_THAT(outcome.log,
              ElementsAre("step 4 at 8.500 s: kept 12, dropped 0", "step 7 at 15.500 s: kept 9, dropped 0",
                          "step 10 at 22.500 s: kept 9, dropped 0", "step 12 at 27.500 s: kept 6, dropped 0",
                          "step 14 at 32.500 s: kept 6, dropped 0", "step 16 at 37.500 s: kept 6, dropped 0",
                          "step 17 at 40.500 s: kept 3, dropped 0", "step 18 at 43.500 s: kept 3, dropped 0"));
  // There are 8 averages of 16 bytes, and 7 gatherings: the first one of two numbers, the others of one. A gathered
  // number sends N (N - 1) x 8 bytes.
  EXPECT_EQ(outcome.totals.bytes, Bytes{8 * 2 * 2 * 16 + (7 + 1) * 3 * 2 * 8});
  EXPECT_EQ(outcome.totals.collectives, 8 + 7);
  expect_exact_accounts(outcome);
}

// Averages end at 8.5, 17.5 and 26.5 s, gatherings 0.5 s later. The third average is the first after 20 s. The root of
// the loss is then 0.9^11 of the first, so rounds have ceil(4 x 0.9^11) = 2 steps. The average after step 18 is the
// first after 40 s.
TEST(AdaComm, ByTimeLooksAtTheLossAfterEachInterval) {
  const auto outcome = bowl({.steps = 20}).run(AdaComm({.period = {.initial = 4}, .interval_s = 20.0}));
  EXPECT_THAT(outcome.log,
              ElementsAre("step 4 at 8.500 s: kept 12, dropped 0", "step 8 at 17.500 s: kept 12, dropped 0",
                          "step 12 at 26.500 s: kept 12, dropped 0", "step 14 at 31.500 s: kept 6, dropped 0",
                          "step 16 at 36.500 s: kept 6, dropped 0", "step 18 at 41.500 s: kept 6, dropped 0",
                          "step 19 at 44.500 s: kept 3, dropped 0", "step 20 at 47.500 s: kept 3, dropped 0"));
  // The time is gathered with the loss: 7 gatherings of two numbers, the first one of three.
  EXPECT_EQ(outcome.totals.bytes, Bytes{8 * 2 * 2 * 16 + (7 * 2 + 1) * 3 * 2 * 8});
}

// Losses are not gathered after steps 4, 10 and 14. Periods become 4 x 0.9^7 = 1.91, 4 x 0.9^11 = 1.26 and
// 4 x 0.9^17 = 0.67, rounded up.
TEST(AdaComm, ByStepsGathersOncePerInterval) {
  const auto outcome = bowl({.steps = 20}).run(AdaComm({.period = {.initial = 4}, .interval_steps = 6}));
  EXPECT_THAT(outcome.log,
              ElementsAre("step 4 at 8.500 s: kept 12, dropped 0", "step 8 at 17.000 s: kept 12, dropped 0",
                          "step 10 at 22.000 s: kept 6, dropped 0", "step 12 at 26.500 s: kept 6, dropped 0",
                          "step 14 at 31.500 s: kept 6, dropped 0", "step 16 at 36.000 s: kept 6, dropped 0",
                          "step 18 at 40.500 s: kept 6, dropped 0", "step 19 at 43.500 s: kept 3, dropped 0",
                          "step 20 at 46.000 s: kept 3, dropped 0"));
  EXPECT_EQ(outcome.totals.bytes, Bytes{9 * 2 * 2 * 16 + (3 + 1) * 3 * 2 * 8});
}

// The loss goes up and down, because each sample has its own target. The replay is in double precision. No number of
// steps is close to an integer before it is rounded up, so float32 rounds up to the same number.
TEST(AdaComm, IsTheRecursionOfItsLosses) {
  constexpr int workers = 3, micro_batches = 2, steps = 160, tau_0 = 5;
  constexpr double rate = 0.05;
  for (const LossPeriod::Form form : {LossPeriod::Form::adacomm, LossPeriod::Form::paddle})
    for (const NotBelow not_below : {NotBelow::take, NotBelow::keep, NotBelow::shrink}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(form) << static_cast<int>(not_below));
      std::vector<std::vector<double>> theta(workers, std::vector<double>(4, 1.0));
      double F_0 = 0;
      int tau = form == LossPeriod::Form::paddle ? 3 : tau_0;  // ceil(sqrt(5)) = 3
      std::vector<std::int64_t> averages;
      for (int done = 0; done < steps;) {
        double F = 0;
        const int end = std::min(done + tau, steps);
        for (; done < end; ++done) {
          F = 0;
          for (int k = 0; k < workers; ++k)
            for (std::size_t i = 0; i < 4; ++i) {
              double gradient = 0;
              for (int m = 0; m < micro_batches; ++m) {
                const double distance = theta[k][i] - PullObjective::target({Rank{k}, done, m}, i);
                gradient += distance / micro_batches;
                F += distance * distance / 2 / micro_batches / workers;
              }
              theta[k][i] -= rate * gradient;
            }
          if (done == 0) F_0 = F;
        }
        averages.push_back(done);
        const std::vector<double> first = theta[0];
        for (std::size_t i = 0; i < 4; ++i) {
          const double mean = (first[i] + theta[1][i] + theta[2][i]) / 3;
          for (auto& one : theta) one[i] = mean;
        }
        const double exact = form == LossPeriod::Form::paddle ? std::sqrt(tau_0 * F / F_0) : std::sqrt(F / F_0) * tau_0;
        ASSERT_GT(std::abs(exact - std::round(exact)), 1e-4);
        const int next = static_cast<int>(std::ceil(exact));
        if (next < tau || not_below == NotBelow::take)
          tau = next;
        else if (not_below == NotBelow::shrink)
          tau = (tau + 1) / 2;
      }
      const SimulatedRun setup{
          .workers = workers, .micro_batches = micro_batches, .rate = rate, .budget = {.steps = steps}};
      const auto outcome = setup.run(AdaComm({.period = {.initial = tau_0, .form = form, .not_below = not_below}}));
      EXPECT_EQ(steps_of(outcome), averages);
      EXPECT_GT(averages.size(), 5u);
      for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(outcome.parameters[i], theta[0][i], 1e-5 * std::abs(theta[0][i]));
    }
}

TEST(AdaComm, EndsWithABudgetOfSecondsOrSamples) {
  // The first round's gathering ends at 9 s. The clock ends the second round: workers stop at 13, 14 and 13 s.
  const AdaComm method({.period = {.initial = 4, .minimum = 4}});
  EXPECT_THAT(bowl({.seconds = 13}).run(method).log,
              ElementsAre("step 4 at 8.500 s: kept 12, dropped 0", "step 8 at 14.500 s: kept 10, dropped 0"));
  EXPECT_EQ(bowl({.samples = 24}).run(method).samples, 24);
}

TEST(AdaComm, GoesOnWithAWorkerThatHasLostItsState) {
  for (const double at_s : {2.3, 6.3}) {  // before and after F_0, the first loss, is known
    SimulatedRun setup = bowl({.steps = 18});
    setup.delays = {};
    setup.outages = std::make_shared<OutagePlan>(
        1,
        std::vector<OutageEntry>{
            {.workers = {Rank{1}}, .when = ScheduledOutage{from_seconds(at_s), from_seconds(1)}, .loses_state = true}});
    const auto outcome = setup.run(AdaComm({.period = {.initial = 4}}));
    EXPECT_EQ(outcome.published, Step{18});
    EXPECT_EQ(sum(outcome.totals.kept) + sum(outcome.totals.dropped), 3 * 18);
    EXPECT_LT(outcome.rounds.back().period, Step{4});  // the other workers have reported their losses
    expect_exact_accounts(outcome);
  }
}

TEST(AdaComm, EndsWithAReasonWhereAWorkerLeaves) {
  SimulatedRun setup = bowl({.steps = 18});
  setup.data_of = {{}, Step{5}, {}};
  EXPECT_THROW(setup.run(AdaComm({.period = {.initial = 4}})), RunFailure);
}

TEST(AdaComm, GoesOnWhereTheModelHasDiverged) {
  const SimulatedRun setup{.rate = 1000, .budget = {.steps = 40}};
  const auto outcome = setup.run(AdaComm({.period = {.initial = 2, .maximum = Step{8}}}));
  EXPECT_EQ(steps_of(outcome).back(), 40);
  EXPECT_FALSE(std::isfinite(outcome.parameters[0]));
}

TEST(AdaComm, FaultsNameTheKey) {
  const auto read = [](const std::string& keys, const AlgorithmContext& context = {.workers = 4}) {
    return read_method("algorithm = \"adacomm\"\n" + keys, context).faults;
  };
  EXPECT_EQ(read("initial_period = 4"), "");
  EXPECT_EQ(read("initial_period = 4\nnot_below = \"shrink\"\nshrinkage = 0.7\ninterval_s = 60"), "");
  EXPECT_THAT(read(""), HasSubstr("initial_period"));
  EXPECT_THAT(read("initial_period = 0"), HasSubstr("initial_period = 0"));
  EXPECT_THAT(read("initial_period = 4\nshrinkage = 0.5"), HasSubstr("shrinkage"));
  EXPECT_THAT(read("initial_period = 4\nnot_below = \"shrink\"\nshrinkage = 1.0"), HasSubstr("shrinkage = 1"));
  EXPECT_THAT(read("initial_period = 4\nminimum = 5\nmaximum = 4"), HasSubstr("maximum = 4"));
  EXPECT_THAT(read("initial_period = 4\ninterval_s = 0"), HasSubstr("interval_s = 0"));
  EXPECT_THAT(read("initial_period = 4\ninterval_steps = 10\ninterval_s = 5"), HasSubstr("interval_s = 5"));
  EXPECT_THAT(read("initial_period = 4\nformula = \"theirs\""), AllOf(HasSubstr("formula"), HasSubstr("paddle")));
  EXPECT_THAT(read("initial_period = 4", {.workers = 4, .time_only = true}), HasSubstr("needs a model"));
  const AlgorithmContext warmed{.workers = 4, .learning_rate_warmup = 10};
  EXPECT_EQ(read("initial_period = 4", warmed), "");
  EXPECT_THAT(read("initial_period = 4\nfollow_rate = true", warmed), HasSubstr("warm-up"));
  EXPECT_THAT(read("initial_period = 4\nformula = \"paddle\"", warmed), HasSubstr("warm-up"));
  EXPECT_EQ(read("initial_period = 4\nformula = \"paddle\"\nfollow_rate = false", warmed), "");
}

// The rule gives sqrt(400) = 20 steps; the default maximum is 16.
TEST(AdaComm, InPaddlesFormFollowsTheRateUpTo16Steps) {
  const std::string paddle = "algorithm = \"adacomm\"\ninitial_period = 400\nformula = \"paddle\"\n";
  SimulatedRun setup{.budget = {.steps = 50}};
  setup.objective = std::make_shared<ConstantLoss>();
  EXPECT_THAT(steps_of(setup.run(*read_method(paddle).algorithm)), ElementsAre(16, 32, 48, 50));
  EXPECT_THAT(steps_of(setup.run(*read_method(paddle + "maximum = 30").algorithm)), ElementsAre(20, 40, 50));
}

using Form = LossPeriod::Form;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

TEST(LossPeriod, IsTheRootOfTheLossTimesTheFirstPeriodRoundedUp) {
  const LossPeriod rule({.initial = 10});
  EXPECT_EQ(rule.first(), Step{10});
  EXPECT_EQ(rule.next(0.25, 1, 10), Step{5});
  EXPECT_EQ(rule.next(0.26, 1, 10), Step{6});   // 5.099, rounded up
  EXPECT_EQ(rule.next(0.009, 1, 10), Step{1});  // 0.949, rounded up
  EXPECT_EQ(rule.next(0, 1, 10), Step{1});
  EXPECT_EQ(rule.next(4, 1, 10), Step{20});
  EXPECT_EQ(rule.next(0.25, 16, 10), Step{5});  // rates have no effect without follows_rate
}

TEST(LossPeriod, RisesAsTheRateFalls) {
  const LossPeriod rule({.initial = 10, .follows_rate = true});
  EXPECT_EQ(rule.next(1, 4, 10), Step{20});
  EXPECT_EQ(rule.next(0.25, 4, 10), Step{10});
  EXPECT_EQ(rule.next(0.25, 2, 10), Step{8});  // 7.07, rounded up
}

TEST(LossPeriod, HasTheFirstPeriodInsideTheRootInPaddlesForm) {
  const LossPeriod rule({.initial = 9, .form = Form::paddle, .follows_rate = true, .maximum = Step{16}});
  EXPECT_EQ(rule.first(), Step{3});
  EXPECT_EQ(rule.next(0.25, 1, 3), Step{2});  // 1.5, rounded up
  EXPECT_EQ(rule.next(0.25, 4, 3), Step{3});
  EXPECT_EQ(rule.next(1, 1000, 3), Step{16});
  EXPECT_EQ(rule.next(1e-9, 1, 3), Step{1});
}

TEST(LossPeriod, WhatIsNotBelowTheLastIsTakenOrNot) {
  const LossPeriod take({.initial = 10}), keep({.initial = 10, .not_below = NotBelow::keep}),
      shrink({.initial = 10, .not_below = NotBelow::shrink}),
      third({.initial = 10, .not_below = NotBelow::shrink, .shrinkage = 1.0 / 3});
  EXPECT_EQ(take.next(0.81, 1, 5), Step{9});
  EXPECT_EQ(keep.next(0.81, 1, 5), Step{5});
  EXPECT_EQ(shrink.next(0.81, 1, 5), Step{3});  // half of 5, rounded up
  EXPECT_EQ(shrink.next(0.25, 1, 5), Step{3});  // 5 is not below the last period
  EXPECT_EQ(shrink.next(0.16, 1, 5), Step{4});  // 4 is below the last period
  EXPECT_EQ(third.next(0.81, 1, 6), Step{2});
  EXPECT_EQ(shrink.next(0.81, 1, 1), Step{1});
}

TEST(LossPeriod, StaysWithinItsBounds) {
  const LossPeriod rule({.initial = 10, .minimum = 4, .maximum = Step{12}});
  EXPECT_EQ(rule.next(0.01, 1, 10), Step{4});
  EXPECT_EQ(rule.next(100, 1, 10), Step{12});
  EXPECT_EQ(LossPeriod({.initial = 10, .maximum = Step{8}}).first(), Step{8});
  EXPECT_GT(LossPeriod({.initial = 10}).next(1e300, 1, 10), Step{1'000'000});
}

TEST(LossPeriod, StaysWhereTheLossIsNoNumber) {
  const LossPeriod rule({.initial = 10, .follows_rate = true});
  EXPECT_EQ(rule.next(no_number, 1, 7), Step{7});
  EXPECT_EQ(rule.next(infinity, 1, 7), Step{7});
  EXPECT_EQ(rule.next(-1, 1, 7), Step{7});
  EXPECT_EQ(rule.next(1, infinity, 7), Step{7});
}

// Sums in another order give a ratio of losses that is 1 only up to rounding.
TEST(LossPeriod, DoesNotRoundUpWhatIsWholeButForRounding) {
  const LossPeriod rule({.initial = 10});
  for (const double one : {1 + 1e-15, 1.0, 1 - 1e-15, 1 + 4e-16}) EXPECT_EQ(rule.next(one, 1, 10), Step{10});
  EXPECT_EQ(rule.next(1 + 1e-9, 1, 10), Step{11});
}

}  // namespace
}  // namespace syncopate
