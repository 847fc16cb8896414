#include "algorithms/local_sgd/dynamic_averaging.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "algorithms/local_sgd/local_sgd.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double infinity = std::numeric_limits<double>::infinity();

DynamicAveraging above(double threshold, int check_every) { return DynamicAveraging(threshold, check_every, {}); }

std::vector<std::int64_t> steps_of(const SimulatedRun::Outcome& outcome) {
  std::vector<std::int64_t> steps;
  for (const StepRow& round : outcome.rounds) steps.push_back(round.step.value());
  return steps;
}

TEST(DynamicAveraging, AThresholdOfZeroEqualsLocalSgdWithThePeriodOfTheChecksBitForBit) {
  const SimulatedRun setup{.workers = 4, .micro_batches = 2, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 22}};
  const auto dynamic = setup.run(above(0, 4));
  EXPECT_EQ(dynamic.parameters, setup.run(LocalSgd(make_constant_period(4), {})).parameters);
  EXPECT_THAT(steps_of(dynamic), ElementsAre(4, 8, 12, 16, 20, 22));
}

TEST(DynamicAveraging, WithoutAThresholdItAveragesOnceAtTheEnd) {
  const SimulatedRun setup{.workers = 4, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 22}};
  const auto dynamic = setup.run(above(infinity, 4));
  EXPECT_EQ(dynamic.parameters, setup.run(LocalSgd(make_swap_period(0), {})).parameters);
  EXPECT_THAT(steps_of(dynamic), ElementsAre(22));
}

TEST(DynamicAveraging, ModelsThatHaveNotMovedAreNotAboveAThresholdOfZero) {
  EXPECT_THAT(steps_of(SimulatedRun{.rate = 0, .budget = {.steps = 8}}.run(above(0, 2))), ElementsAre(8));
}

// The steps of the averages and the model after them, in double precision. The mean squared distances that decide
// lie at least 2 % from the threshold, so that rounding to float32 cannot turn a decision.
TEST(DynamicAveraging, AveragesWhereTheMeanSquaredDistanceExceedsTheThreshold) {
  constexpr int workers = 3, steps = 60, check_every = 2;
  constexpr double rate = 0.02, threshold = 2.0;
  std::vector<std::vector<double>> theta(workers, std::vector<double>(4, 1.0));
  std::vector<double> last(4, 1.0);
  std::vector<std::int64_t> averages;
  for (int step = 0; step < steps; ++step) {
    for (int k = 0; k < workers; ++k)
      for (std::size_t i = 0; i < 4; ++i)
        theta[k][i] -= rate * (theta[k][i] - PullObjective::target({Rank{k}, step, 0}, i));
    if ((step + 1) % check_every != 0) continue;
    double mean = 0;
    for (int k = 0; k < workers; ++k)
      for (std::size_t i = 0; i < 4; ++i) mean += (theta[k][i] - last[i]) * (theta[k][i] - last[i]) / workers;
    ASSERT_GT(std::abs(mean - threshold), 0.02 * threshold) << "step " << step + 1;
    if (mean <= threshold && step + 1 < steps) continue;
    averages.push_back(step + 1);
    for (std::size_t i = 0; i < 4; ++i) last[i] = (theta[0][i] + theta[1][i] + theta[2][i]) / 3;
    theta.assign(workers, last);
  }
  const SimulatedRun setup{.workers = workers, .rate = rate, .budget = {.steps = steps}};
  const auto outcome = setup.run(above(threshold, check_every));
  EXPECT_EQ(steps_of(outcome), averages);
  EXPECT_GT(averages.size(), 3u);   // neither always
  EXPECT_LT(averages.size(), 25u);  // nor never
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(outcome.parameters[i], last[i], 1e-5 * std::abs(last[i]));
  // Per check an all-gather of 2 numbers (N (N - 1) x 16 bytes), per average an all-reduce of 16 bytes.
  const auto rounds = static_cast<std::int64_t>(averages.size());
  EXPECT_EQ(outcome.totals.bytes, Bytes{steps / check_every * (3 * 2 * 16) + rounds * 2 * 2 * 16});
}

// Steps of 1 s, 1.25 s and 2 s; a collective takes 0.5 s.
TEST(DynamicAveraging, EveryCheckWaitsForTheSlowest) {
  const SimulatedRun setup{.budget = {.steps = 4},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  EXPECT_EQ(setup.run(above(infinity, 2)).log,
            (std::vector<std::string>{"step 4 at 9.500 s: kept 12, dropped 0"}));  // 2 x (4 + 0.5) + 0.5
  EXPECT_EQ(setup.run(above(0, 2)).log, (std::vector<std::string>{"step 2 at 5.000 s: kept 6, dropped 0",
                                                                  "step 4 at 10.000 s: kept 6, dropped 0"}));
}

TEST(DynamicAveraging, EndsWithABudgetOfSecondsOrSamples) {
  SimulatedRun setup{.budget = {.seconds = 10},
                     .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  const auto outcome = setup.run(above(infinity, 100));
  EXPECT_THAT(outcome.log, ElementsAre("step 10 at 11.000 s: kept 23, dropped 0"));  // a check and an average
  // The budget may be used up after a check that all have seen before its end: checks end at 4.5, 9 and 10.5 s.
  EXPECT_THAT(SimulatedRun{.budget = {.seconds = 10}}.run(above(infinity, 4)).log,
              ElementsAre("step 9 at 11.000 s: kept 27, dropped 0"));
  setup.budget = {.samples = 12};
  EXPECT_EQ(setup.run(above(infinity, 3)).samples, 12);
}

// The first check finds that models have moved, and averages; from then on they stay where they are, and checks end at
// 9.5, 14, 18.5 and, after two steps more, at 21 s.
TEST(DynamicAveraging, EndsWithABudgetOfSecondsLongAfterItsLastAverage) {
  const SimulatedRun setup{
      .learning_rate = std::make_shared<LearningRate>(LearningRate::Options{
          .shape = LearningRate::Shape::step, .peak = 0.1, .decay_steps = {Step{4}}, .decay_factor = 1e-9}),
      .budget = {.seconds = 20}};
  EXPECT_THAT(setup.run(above(0.01, 4)).log,
              ElementsAre("step 4 at 5.000 s: kept 12, dropped 0", "step 18 at 21.500 s: kept 42, dropped 0"));
}

TEST(DynamicAveraging, EndsWhereTheModelHasDiverged) {
  // |1 - rate| = 999 at each step: beyond float32 after 13 steps; then no distance is a number.
  const SimulatedRun setup{.rate = 1000, .budget = {.steps = 40}};
  for (const double threshold : {1e9, infinity}) {
    const auto outcome = setup.run(above(threshold, 2));
    EXPECT_EQ(steps_of(outcome).back(), 40);
    EXPECT_FALSE(std::isfinite(outcome.parameters[0]));
    EXPECT_GT(outcome.rounds.size(), 5u);  // averaged at every check, so that the next evaluation shows it
  }
}

TEST(DynamicAveraging, ReadsItsKeys) {
  const std::string name = "algorithm = \"dynamic-averaging\"\n";
  const auto reading = read_method(name + "threshold = 0.5\ncheck_every = 3");
  EXPECT_EQ(reading.faults, "");
  const SimulatedRun setup{.budget = {.steps = 12}};
  EXPECT_EQ(steps_of(setup.run(*reading.algorithm)), steps_of(setup.run(above(0.5, 3))));
  EXPECT_EQ(read_method(name + "threshold = inf\ncheck_every = 3").faults, "");
  EXPECT_THAT(read_method(name + "threshold = -1\ncheck_every = 0").faults,
              AllOf(HasSubstr("threshold = -1"), HasSubstr("check_every = 0")));
}

TEST(DynamicAveraging, NeedsAModelAndABudgetThatEndsWithoutCommunication) {
  const std::string method = "algorithm = \"dynamic-averaging\"\nthreshold = 1\ncheck_every = 3";
  EXPECT_THAT(read_method(method, {.time_only = true}).faults, HasSubstr("model"));
  EXPECT_THAT(read_method(method, {.budget_ends_alone = false}).faults, HasSubstr("bytes"));
}

}  // namespace
}  // namespace syncopate
