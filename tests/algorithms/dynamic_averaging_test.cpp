#include "algorithms/local_sgd/dynamic_averaging.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "tests/algorithms/kicked_workers.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double infinity = std::numeric_limits<double>::infinity();

DynamicAveraging above(double threshold, int check_every) {
  return DynamicAveraging(
      {.threshold = threshold, .check_every = check_every, .checks = DynamicOptions::Checks::gathered});
}

std::vector<std::int64_t> steps_of(const SimulatedRun::Outcome& outcome) {
  std::vector<std::int64_t> steps;
  for (const StepRow& round : outcome.rounds) steps.push_back(round.step.value());
  return steps;
}

TEST(GatheredDynamicAveraging, AThresholdOfZeroEqualsLocalSgdWithThePeriodOfTheChecksBitForBit) {
  const SimulatedRun setup{.workers = 4, .micro_batches = 2, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 22}};
  const auto dynamic = setup.run(above(0, 4));
  EXPECT_EQ(dynamic.parameters, setup.run(LocalSgd(make_constant_period(4), {})).parameters);
  EXPECT_THAT(steps_of(dynamic), ElementsAre(4, 8, 12, 16, 20, 22));
}

TEST(GatheredDynamicAveraging, WithoutAThresholdItAveragesOnceAtTheEnd) {
  const SimulatedRun setup{.workers = 4, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 22}};
  const auto dynamic = setup.run(above(infinity, 4));
  EXPECT_EQ(dynamic.parameters, setup.run(LocalSgd(make_swap_period(0), {})).parameters);
  EXPECT_THAT(steps_of(dynamic), ElementsAre(22));
}

TEST(GatheredDynamicAveraging, ModelsThatHaveNotMovedAreNotAboveAThresholdOfZero) {
  EXPECT_THAT(steps_of(SimulatedRun{.rate = 0, .budget = {.steps = 8}}.run(above(0, 2))), ElementsAre(8));
}

// The steps with averages, and the models after them, in double precision. The mean squared distances that decide are
// at least 2 % away from the threshold, so rounding to float32 cannot change a decision.
TEST(GatheredDynamicAveraging, AveragesWhereTheMeanSquaredDistanceExceedsTheThreshold) {
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
  EXPECT_GT(averages.size(), 3u);   // several checks lead to an average,
  EXPECT_LT(averages.size(), 25u);  // but not all 30
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(outcome.parameters[i], last[i], 1e-5 * std::abs(last[i]));
  // Each check is an all-gather of 2 numbers (N (N - 1) x 16 bytes), each average an all-reduce of 16 bytes.
  const auto rounds = static_cast<std::int64_t>(averages.size());
  EXPECT_EQ(outcome.totals.bytes, Bytes{steps / check_every * (3 * 2 * 16) + rounds * 2 * 2 * 16});
}

// Steps take 1 s, 1.25 s and 2 s; a collective takes 0.5 s.
TEST(GatheredDynamicAveraging, EveryCheckWaitsForTheSlowest) {
  const SimulatedRun setup{.budget = {.steps = 4},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  EXPECT_EQ(setup.run(above(infinity, 2)).log,
            (std::vector<std::string>{"step 4 at 9.500 s: kept 12, dropped 0"}));  // 2 checks, an average
  EXPECT_EQ(setup.run(above(0, 2)).log, (std::vector<std::string>{"step 2 at 5.000 s: kept 6, dropped 0",
                                                                  "step 4 at 10.000 s: kept 6, dropped 0"}));
}

TEST(GatheredDynamicAveraging, EndsWithABudgetOfSecondsOrSamples) {
  SimulatedRun setup{.budget = {.seconds = 10},
                     .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  const auto outcome = setup.run(above(infinity, 100));
  EXPECT_THAT(outcome.log, ElementsAre("step 10 at 11.000 s: kept 23, dropped 0"));  // with a check and an average
  // Checks end at 4.5 s, 9 s and, after the step with which the budget ends at 10 s, at 10.5 s.
  EXPECT_THAT(SimulatedRun{.budget = {.seconds = 10}}.run(above(infinity, 4)).log,
              ElementsAre("step 9 at 11.000 s: kept 27, dropped 0"));
  setup.budget = {.samples = 12};
  EXPECT_EQ(setup.run(above(infinity, 3)).samples, 12);
}

// The first check finds that models have moved, and leads to an average. From then on models stay where they are, and
// checks end at 9.5, 14, 18.5 and, after two more steps, at 21 s.
TEST(GatheredDynamicAveraging, EndsWithABudgetOfSecondsLongAfterItsLastAverage) {
  const SimulatedRun setup{
      .learning_rate = std::make_shared<LearningRate>(LearningRate::Options{
          .shape = LearningRate::Shape::step, .peak = 0.1, .decay_steps = {Step{4}}, .decay_factor = 1e-9}),
      .budget = {.seconds = 20}};
  EXPECT_THAT(setup.run(above(0.01, 4)).log,
              ElementsAre("step 4 at 5.000 s: kept 12, dropped 0", "step 18 at 21.500 s: kept 42, dropped 0"));
}

TEST(GatheredDynamicAveraging, EndsWhereTheModelHasDiverged) {
  // Each step multiplies distances by |1 - rate| = 999: beyond float32 after 13 steps. Then no distance is a number.
  const SimulatedRun setup{.rate = 1000, .budget = {.steps = 40}};
  for (const double threshold : {1e9, infinity}) {
    const auto outcome = setup.run(above(threshold, 2));
    EXPECT_EQ(steps_of(outcome).back(), 40);
    EXPECT_FALSE(std::isfinite(outcome.parameters[0]));
    EXPECT_GT(outcome.rounds.size(), 5u);  // an average at every check, so the next evaluation shows the divergence
  }
}

DynamicAveraging own_checks(double threshold, int check_every) {
  return DynamicAveraging({.threshold = threshold, .check_every = check_every});
}

// At threshold 0 all workers violate at every check. The mean of some models violates, too, so all are averaged.
TEST(DynamicAveraging, AThresholdOfZeroEqualsLocalSgdWithThePeriodOfTheChecks) {
  for (const int steps : {20, 22}) {
    const SimulatedRun setup{
        .workers = 4, .micro_batches = 2, .momentum = 0.9, .rate = 0.05, .budget = {.steps = steps}};
    const auto found = setup.run(own_checks(0, 4)).parameters;
    const auto expected = setup.run(LocalSgd(make_constant_period(4), {})).parameters;
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(found[i], expected[i], 1e-5 * std::abs(expected[i]));
  }
}

TEST(DynamicAveraging, WithoutAThresholdNothingIsSentButTheLastModels) {
  const SimulatedRun setup{.workers = 4, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 22}};
  const auto dynamic = setup.run(own_checks(infinity, 4));
  const auto expected = setup.run(LocalSgd(make_swap_period(0), {})).parameters;
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(dynamic.parameters[i], expected[i], 1e-5 * std::abs(expected[i]));
  EXPECT_EQ(dynamic.totals.messages, 4);
  EXPECT_EQ(dynamic.totals.bytes, Bytes{4 * 16});
  EXPECT_EQ(dynamic.totals.collectives, 0);
  EXPECT_EQ(dynamic.published, Step{22});
}

// With a rate of 1, after the first step the four parameters of worker w (0 to 3) differ from the reference by w - 1,
// w, w + 1 and w + 2. The squared distance is 4 w^2 + 4 w + 6: 6, 14, 30 and 54. For the mean of two workers this
// formula holds with the mean of their numbers, and gives at most 41. So at a threshold of 42 only worker 3 exceeds it,
// and its mean with any other worker does not. The coordinator sends that other worker a request for its model at 1.25
// s. The worker receives the request at 1.5 s, and answers after its second step at 2 s; both have the mean at 2.5 s.
// The remaining workers never wait. After that no model moves.
TEST(DynamicAveraging, AViolationEndsOnceAnotherModelBringsTheMeanNearEnough) {
  const SimulatedRun setup{
      .workers = 4,
      .network_s = 0.25,
      .learning_rate = std::make_shared<LearningRate>(LearningRate::Options{
          .shape = LearningRate::Shape::step, .peak = 1, .decay_steps = {Step{1}}, .decay_factor = 1e-12}),
      .budget = {.steps = 3}};
  const auto method = own_checks(42, 1);
  const WithLastModels recorded(method, 4);
  const auto outcome = setup.run(recorded);
  EXPECT_THAT(outcome.log, ElementsAre("step 1 at 2.500 s: kept 4, dropped 0", "step 2 at 3.500 s: kept 4, dropped 0",
                                       "step 3 at 4.500 s: kept 4, dropped 0"));
  int others_averaged = 0;
  for (int worker = 0; worker < 3; ++worker) {
    const float found = recorded.models[static_cast<std::size_t>(worker)][0];
    if (std::abs(found - static_cast<float>(worker)) < 1e-6) continue;
    ++others_averaged;
    EXPECT_NEAR(found, static_cast<float>(worker + 3) / 2, 1e-6);
    EXPECT_NEAR(recorded.models[3][0], found, 1e-6);
  }
  EXPECT_EQ(others_averaged, 1);
  EXPECT_FLOAT_EQ(outcome.parameters[0], 1.5f);           // the mean of all has not changed
  EXPECT_EQ(outcome.totals.messages, 1 + 1 + 1 + 2 + 4);  // violation, request, answer, means, last models
  EXPECT_EQ(outcome.totals.bytes, Bytes{4 * (16 + 8) + 4 * 16});
}

// With two workers, all models are known once one worker has violated and the other has answered. Their mean is then
// the reference. Neither worker moves away from it, and nothing more is sent.
TEST(DynamicAveraging, TheMeanOfAllIsTheNewReference) {
  const SimulatedRun setup{
      .workers = 2,
      .network_s = 0.25,
      .learning_rate = std::make_shared<LearningRate>(LearningRate::Options{
          .shape = LearningRate::Shape::step, .peak = 1, .decay_steps = {Step{1}}, .decay_factor = 1e-12}),
      .budget = {.steps = 9}};
  // The squared distances are 6 and 14, and that of the mean, at w = 1/2, is 9.
  EXPECT_EQ(setup.run(own_checks(8, 1)).totals.messages, 1 + 1 + 1 + 2 + 2);
}

// Pulls to the targets of step 0 in all steps.
class SteadyPull : public PullObjective {
 public:
  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override {
    std::vector<MicroBatch> as_first(micro_batches.begin(), micro_batches.end());
    for (MicroBatch& micro_batch : as_first) micro_batch.step = Step{0};
    return PullObjective::gradient(parameters, buffers, as_first);
  }
};

// The distances are those of the four workers above. But the rate is 1 in all steps: wherever averaging puts worker w,
// a step takes it to the same place again. So worker 3 violates at every check, and another model is near enough each
// time. The fourth violation of four workers collects all models. From their mean no worker moves as far as the
// threshold: 4 (w - 3/2)^2 is at most 9.
TEST(DynamicAveraging, AsManyViolationsAsWorkersAverageAll) {
  const SimulatedRun setup{
      .workers = 4, .network_s = 0.25, .rate = 1, .budget = {.steps = 20}, .objective = std::make_shared<SteadyPull>()};
  constexpr int one_violation = 1 + 1 + 1 + 2;  // a violation, a request, an answer and two means
  EXPECT_EQ(setup.run(own_checks(42, 1)).totals.messages, 3 * one_violation + (1 + 3 + 3 + 4) + 4);
}

// A slow worker delays only workers that wait for its model.
TEST(DynamicAveraging, WhoIsNearTheReferenceWaitsForNobody) {
  const SimulatedRun setup{.budget = {.steps = 4},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  const auto outcome = setup.run(own_checks(infinity, 1));
  EXPECT_EQ(
      to_seconds(start_time + outcome.totals.accounts[0][Activity::wait]) + 4,
      to_seconds(outcome.totals.end) - to_seconds(start_time + outcome.totals.accounts[0][Activity::communicate]));
  EXPECT_EQ(outcome.log.back(), "step 4 at 8.000 s: kept 3, dropped 0");
  EXPECT_EQ(to_seconds(outcome.totals.end), 8.5);
}

TEST(DynamicAveraging, EndsWhereTheModelHasDiverged) {
  const SimulatedRun setup{.rate = 1000, .budget = {.steps = 40}};
  const auto outcome = setup.run(own_checks(1e9, 2));
  EXPECT_FALSE(std::isfinite(outcome.parameters[0]));
  EXPECT_GT(outcome.totals.messages, 3 + 5 * 6);  // an average at every check
}

TEST(DynamicAveraging, EndsWithABudgetOfSeconds) {
  const SimulatedRun setup{.budget = {.seconds = 10},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  for (const double threshold : {0.0, 2.0, infinity}) {
    const auto outcome = setup.run(own_checks(threshold, 2));
    EXPECT_GE(to_seconds(outcome.totals.end), 10);
    EXPECT_LE(to_seconds(outcome.totals.end), 15);
  }
}

TEST(DynamicAveraging, ReadsItsKeys) {
  const std::string name = "algorithm = \"dynamic-averaging\"\n";
  const auto reading = read_method(name + "threshold = 0.5\ncheck_every = 3");
  EXPECT_EQ(reading.faults, "");
  const SimulatedRun setup{.budget = {.steps = 12}};
  EXPECT_EQ(setup.run(*reading.algorithm).parameters, setup.run(own_checks(0.5, 3)).parameters);
  const auto gathered = read_method(name + "threshold = 0.5\ncheck_every = 3\nchecks = \"gathered\"");
  EXPECT_EQ(gathered.faults, "");
  EXPECT_EQ(steps_of(setup.run(*gathered.algorithm)), steps_of(setup.run(above(0.5, 3))));
  EXPECT_THAT(read_method(name + "threshold = 0.5\ncheck_every = 3\nmoments = \"average\"").faults,
              HasSubstr("must be \"gathered\" unless moments are kept"));
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
