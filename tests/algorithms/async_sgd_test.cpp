#include "algorithms/asynchronous/async_sgd.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/duration_laws.hpp"
#include "tests/algorithms/three_workers.hpp"

namespace syncopate {
namespace {

std::int64_t total(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }

TEST(AsyncSgd, OneWorkerEqualsSerialSgdBitForBit) {
  const SimulatedRun setup{.workers = 1, .micro_batches = 2, .momentum = 0.9, .budget = {.steps = 20}};
  const auto serial = setup.run(SyncSgd());
  const auto async = setup.run(AsyncSgd({}));
  EXPECT_EQ(async.parameters, serial.parameters);
  EXPECT_EQ(async.samples, serial.samples);
  EXPECT_EQ(async.totals.staleness, Counts{20});
}

TEST(AsyncSgd, EveryGradientIsAnUpdate) {
  const auto outcome = three_workers(3).run(AsyncSgd({}));
  // Gradients arrive at 1.5, 1.6, 3.0 | 3.1, 3.2, 4.5 | 4.8, 6.0, 6.2 s. A row of the log has three updates.
  EXPECT_EQ(outcome.log, (Log{
                             "step 1 at 3.000 s: kept 3, dropped 0",
                             "step 2 at 4.500 s: kept 3, dropped 0",
                             "step 3 at 6.200 s: kept 3, dropped 0",
                         }));
  EXPECT_EQ(outcome.totals.kept, (Counts{4, 3, 2}));
  EXPECT_EQ(outcome.totals.staleness, (Counts{1, 4, 2, 1, 1}));
  EXPECT_EQ(outcome.samples, 9);
  EXPECT_EQ(outcome.totals.bytes, Bytes{(9 + 9 + 2) * 16});  // 9 gradients, 3 first models, 8 answers
  expect_accounts_sum_to_the_time(outcome.totals);
}

// The nine updates of the test above: worker, its step, and the version of the model at which its gradient was taken.
struct Update {
  int worker, own_step, version;
};
constexpr Update updates[] = {{0, 0, 0}, {1, 0, 0}, {0, 1, 1}, {2, 0, 0}, {1, 1, 2},
                              {0, 2, 3}, {1, 2, 5}, {0, 3, 6}, {2, 1, 4}};

TEST(AsyncSgd, AnUpdateGoesAsFarAsItsStalenessAllows) {
  for (const auto weight : {StalenessWeight::none, StalenessWeight::inverse, StalenessWeight::inverse_plus_one})
    for (const auto scaling : {RateScaling::linear, RateScaling::none}) {
      SimulatedRun setup = three_workers(3);
      setup.rate = 0.3;
      const auto outcome = setup.run(AsyncSgd({.rate = {weight, scaling}}));
      for (std::size_t i = 0; i < 4; ++i) {
        std::vector<double> theta{1};  // theta[v] is the parameter at version v
        for (const Update& update : updates) {
          const double tau = static_cast<double>(theta.size()) - 1 - update.version;
          const double factor = weight == StalenessWeight::none      ? 1
                                : weight == StalenessWeight::inverse ? (tau == 0 ? 1 : 1 / tau)
                                                                     : 1 / (1 + tau);
          const double rate = scaling == RateScaling::linear ? 0.3 / 3 : 0.3;
          const double gradient = theta.at(static_cast<std::size_t>(update.version)) -
                                  PullObjective::target({Rank{update.worker}, update.own_step, 0}, i);
          theta.push_back(theta.back() - rate * factor * gradient);
        }
        EXPECT_NEAR(outcome.parameters[i], theta.back(), 1e-5);
      }
    }
}

TEST(AsyncSgd, StaleGradientsAreDroppedAndTheirWorkerGetsTheNewestModel) {
  auto objective = std::make_shared<PullObjective>();
  SimulatedRun setup = three_workers(3);
  setup.objective = objective;
  const auto outcome = setup.run(AsyncSgd({.maximum_staleness = Step{2}}));
  // Worker 2's gradients arrive at 3.1 s (3 updates late) and at 6.2 s (4 late), and are dropped. The kept ones arrive
  // at 1.5, 1.6, 3.0 | 3.2, 4.5, 4.8 | 6.0, 6.4, 7.5 s, and each except the first is one update late.
  EXPECT_EQ(outcome.log, (Log{
                             "step 1 at 3.000 s: kept 3, dropped 0",
                             "step 2 at 4.800 s: kept 3, dropped 1",
                             "step 3 at 7.500 s: kept 3, dropped 1",
                         }));
  EXPECT_EQ(outcome.totals.kept, (Counts{5, 4, 0}));
  EXPECT_EQ(outcome.totals.dropped, (Counts{0, 1, 3}));  // worker 2's two late gradients, and two under way at the end
  EXPECT_EQ(outcome.totals.staleness, (Counts{1, 8}));
  EXPECT_EQ(objective->evaluations, 9);  // dropped gradients are not computed
  expect_accounts_sum_to_the_time(outcome.totals);
}

TEST(AsyncSgd, OldGradientsAreDroppedAndOnesOfExactlyTheMaximumAgeKept) {
  const auto by_staleness = three_workers(3).run(AsyncSgd({.maximum_staleness = Step{2}}));
  const auto by_age = three_workers(3).run(AsyncSgd({.maximum_age = from_seconds(1.6)}));
  EXPECT_EQ(by_age.log, by_staleness.log);
  EXPECT_EQ(by_age.parameters, by_staleness.parameters);
  const auto younger = three_workers(3).run(AsyncSgd({.maximum_age = from_seconds(1.599'999'999)}));
  EXPECT_EQ(younger.totals.kept, (Counts{9, 0, 0}));
}

TEST(AsyncSgd, CutOffsThatNothingReachesChangeNothing) {
  SimulatedRun setup = three_workers(10);
  setup.momentum = 0.9;
  const auto plain = setup.run(AsyncSgd({}));
  const auto cut = setup.run(AsyncSgd({.maximum_staleness = Step{30}, .maximum_age = from_seconds(3.1)}));
  EXPECT_EQ(cut.parameters, plain.parameters);
  EXPECT_EQ(cut.totals.staleness, plain.totals.staleness);
}

TEST(AsyncSgd, AnAgeThatNoGradientKeepsIsExplainedInsteadOfGoingOnForEver) {
  SimulatedRun setup = three_workers(3);
  setup.objective = nullptr;
  try {
    setup.run(AsyncSgd({.maximum_age = from_seconds(1.4)}));
    FAIL() << "the run has ended";
  } catch (const RunFailure& failure) {
    EXPECT_THAT(failure.what(), testing::HasSubstr("maximum_age_s (1.4 s)"));
  }
}

TEST(AsyncSgd, NoSampleIsComputedTwiceInAnEpoch) {
  auto objective = std::make_shared<PullObjective>();
  SimulatedRun setup = three_workers(12);
  setup.micro_batches = 2;
  setup.objective = objective;
  setup.run(AsyncSgd({.maximum_staleness = Step{1}}));
  EXPECT_EQ(objective->evaluations, 12 * 3 * 2);
  EXPECT_EQ(static_cast<std::int64_t>(objective->evaluated.size()), objective->evaluations);
}

TEST(AsyncSgd, TheScheduleOfTheLearningRateRunsBySamples) {
  SimulatedRun setup = three_workers(4);
  const auto schedule = std::make_shared<LearningRate>(
      LearningRate::Options{.shape = LearningRate::Shape::linear, .peak = 0.4, .total_steps = Step{4}});
  setup.learning_rate = schedule;
  const auto outcome = setup.run(AsyncSgd({}));
  ASSERT_EQ(outcome.publications.size(), 12u);
  for (std::size_t update = 1; update <= 12; ++update) {
    const Publication& publication = outcome.publications[update - 1];
    EXPECT_EQ(publication.step, Step{static_cast<Step::Rep>(update / 3)});
    EXPECT_EQ(publication.learning_rate, schedule->at(publication.step) * (1.0 / 3));
    EXPECT_EQ(publication.samples, static_cast<std::int64_t>(update));
  }
}

TEST(AsyncSgd, TheServerGoesOnWithTheWorkersThatAreLeft) {
  SimulatedRun setup = three_workers(2);
  setup.data_of = {2, 1, std::nullopt};
  const auto outcome = setup.run(AsyncSgd({}));
  EXPECT_EQ(outcome.totals.kept, (Counts{2, 1, 3}));
  EXPECT_EQ(to_seconds(outcome.totals.end), 9.3);  // the third gradient of worker 2
  setup.budget.steps = 10;
  setup.data_of = {2, 1, 2};
  const auto ended = setup.run(AsyncSgd({}));
  EXPECT_EQ(ended.totals.kept, (Counts{2, 1, 2}));
  EXPECT_EQ(ended.samples, 5);
  expect_accounts_sum_to_the_time(ended.totals);
}

// In the first round of N equal workers the gradient of worker k has a staleness of k. All later gradients have N - 1.
TEST(AsyncSgd, EqualWorkersHaveAStalenessOfOneLessThanTheirNumber) {
  const SimulatedRun setup{.workers = 8, .budget = {.steps = 10}, .objective = nullptr};
  const auto outcome = setup.run(AsyncSgd({}));
  EXPECT_EQ(outcome.totals.staleness, (Counts{1, 1, 1, 1, 1, 1, 1, 73}));
  EXPECT_EQ(outcome.rounds.back().end, start_time + from_seconds(10 * 2.0));
}

// Exponential times are memoryless: each of the P workers sends the next gradient with probability 1/P. So a gradient
// has a staleness of k with probability (1/P) (1 - 1/P)^k.
TEST(AsyncSgd, ExponentialTimesMakeTheStalenessGeometric) {
  constexpr int workers = 8;
  const SimulatedRun setup{.workers = workers,
                           .base_s = 1e-9,
                           .network_s = 0,
                           .budget = {.steps = 20'000},
                           .delays = {exponential_law()},
                           .objective = nullptr};
  const Counts counts = setup.run(AsyncSgd({})).totals.staleness;
  const auto n = static_cast<double>(total(counts));
  EXPECT_EQ(n, 160'000);
  double mean = 0;
  for (std::size_t k = 0; k < counts.size(); ++k) mean += static_cast<double>(k) * static_cast<double>(counts[k]) / n;
  EXPECT_NEAR(mean, workers - 1, 0.01);  // exact except for the first and last gradient of each worker
  for (std::size_t k = 0; k < 30; ++k) {
    const double p = std::pow(1 - 1.0 / workers, static_cast<double>(k)) / workers;
    // The tolerance is five standard errors of independent draws; gradients that overlap in time are only weakly
    // dependent.
    EXPECT_NEAR(static_cast<double>(counts.at(k)) / n, p, 5 * std::sqrt(p * (1 - p) / n)) << k;
  }
}

// Shares of dropped gradients with 16 workers at a maximum staleness. `table` was computed earlier, with one or two
// digits. `expected` is from an independent simulation of the rule: the mean of 200 runs of 100,000 updates, with the
// standard deviation of one run.
struct DropFraction {
  std::int64_t maximum;
  double table, unit_of_table, expected, deviation;
};
void expect_drop_fractions(const std::shared_ptr<const DelayProcess>& law, const std::vector<DropFraction>& cases) {
  for (const DropFraction& c : cases) {
    const SimulatedRun setup{.workers = 16,
                             .base_s = 1e-9,
                             .network_s = 0,
                             .budget = {.steps = 100'000 / 16},
                             .delays = {law},
                             .objective = nullptr};
    const auto totals = setup.run(AsyncSgd({.maximum_staleness = Step{c.maximum}})).totals;
    const auto kept = static_cast<double>(total(totals.kept)), dropped = static_cast<double>(total(totals.dropped));
    EXPECT_EQ(kept, 100'000);
    EXPECT_LE(totals.staleness.size(), static_cast<std::size_t>(c.maximum + 1));
    const double fraction = dropped / (kept + dropped);
    // The tolerance is four standard deviations, and up to 16 gradients that were under way at the end.
    EXPECT_NEAR(fraction, c.expected, 4 * c.deviation + 16e-5) << "maximum staleness " << c.maximum;
    // The tolerance is one unit: half a unit for the rounding of `table`, and half for its own error.
    EXPECT_NEAR(fraction, c.table, c.unit_of_table) << "maximum staleness " << c.maximum;
  }
}

TEST(AsyncSgd, DropFractionsWithExponentialTimesMatchAnIndependentSimulation) {
  expect_drop_fractions(exponential_law(), {{4, .52, .01, .52106, .00044},
                                            {8, .39, .01, .39080, .00049},
                                            {15, .25, .01, .25338, .00048},
                                            {31, .10, .01, .10143, .00048},
                                            {47, .04, .01, .04004, .00043}});
}

TEST(AsyncSgd, DropFractionsWithShiftedExponentialTimesMatchAnIndependentSimulation) {
  expect_drop_fractions(shifted_exponential_law(), {{4, .64, .01, .63863, .00018},
                                                    {8, .42, .01, .41796, .00027},
                                                    {15, .18, .01, .18264, .00039},
                                                    {31, .014, .001, .01377, .00034},
                                                    {47, .001, .001, .00062, .00008}});
}

TEST(AsyncSgd, DropFractionsWithLogNormalTimesMatchAnIndependentSimulation) {
  expect_drop_fractions(lognormal_law(), {{4, .61, .01, .60590, .00029},
                                          {8, .42, .01, .42207, .00035},
                                          {15, .22, .01, .22014, .00042},
                                          {31, .04, .01, .03864, .00043},
                                          // Drops come in rare bursts: the table's error exceeds its rounding.
                                          {47, .005, .0015, .00569, .00021}});
}

// If times were constant, a maximum staleness s < P - 1 would drop exactly 1 - (s + 1) / P.
TEST(AsyncSgd, DropFractionsWithNearlyConstantTimesMatchAnIndependentSimulation) {
  expect_drop_fractions(near_constant_law(), {{4, .69, .01, .68737, .00001},
                                              {8, .44, .01, .43767, .00002},
                                              {15, .03, .01, .03662, .00093},
                                              {31, .00, .01, 0, 0},
                                              {47, .00, .01, 0, 0}});
}

// Without communication a gradient is as old as its computation took, so P(age > a) = exp(-a).
TEST(AsyncSgd, TheDropFractionByAgeIsTheTailOfTheTimes) {
  for (const double age_s : {0.5, 1.0, 3.0}) {
    const SimulatedRun setup{.workers = 16,
                             .base_s = 1e-9,
                             .network_s = 0,
                             .budget = {.steps = 2000},
                             .delays = {exponential_law()},
                             .objective = nullptr};
    const auto totals = setup.run(AsyncSgd({.maximum_age = from_seconds(age_s)})).totals;
    const auto kept = static_cast<double>(total(totals.kept)), n = kept + static_cast<double>(total(totals.dropped));
    const double tail = std::exp(-age_s);
    // The tolerance is four standard errors of n draws, and the 16 gradients under way at the end.
    EXPECT_NEAR(1 - kept / n, tail, 4 * std::sqrt(tail * (1 - tail) / n) + 16 / n);
  }
}

}  // namespace
}  // namespace syncopate
