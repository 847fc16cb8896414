#include "algorithms/quorum/eager_sgd.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using Kind = EagerOptions::Activation;

TEST(EagerSgd, WithEveryRoundSynchronousEqualsSynchronousSgdBitForBit) {
  const SimulatedRun setup{.workers = 4,
                           .micro_batches = 2,
                           .momentum = 0.9,
                           .budget = {.steps = 20},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.3, 0.0, 0.2, 0.1})}};
  const auto expected = setup.run(SyncSgd());
  for (const Kind kind : {Kind::solo, Kind::majority}) {
    const auto outcome = setup.run(EagerSgd({.activation = kind, .synchronous_every = 1}));
    EXPECT_EQ(outcome.parameters, expected.parameters);
    EXPECT_EQ(outcome.log, expected.log);
    expect_exact_accounts(outcome);
  }
}

// Computations take 1, 1.6 and 3.1 s, all-reduces 0.5 s.
SimulatedRun three_workers(int steps) {
  return {.network_s = 0.5,
          .rate = 0.5,
          .budget = {.steps = steps},
          .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.6, 2.1})}};
}

TEST(EagerSgd, SoloTakesPlaceAtTheFirstArrivalAndLateGradientsAreDropped) {
  const auto outcome = three_workers(4).run(EagerSgd({.late = LateGradient::drop}));
  // Worker 0 sets the pace: rounds take place at 1, 2.5, 4 and 5.5 s. Worker 1 arrives at 1.6, 3.2 and 4.8 s, each time
  // after its gradient's round. Worker 2 arrives at 3.1 s, and then after the end.
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 1 at 1.500 s: kept 1, dropped 0",
                             "step 2 at 3.000 s: kept 1, dropped 1",
                             "step 3 at 4.500 s: kept 1, dropped 2",
                             "step 4 at 6.000 s: kept 1, dropped 1",
                         }));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{4, 0, 0}));
  EXPECT_EQ(outcome.totals.accounts[1][Activity::discarded], from_seconds(6.0));  // worker 1 never waits
  expect_exact_accounts(outcome);
}

TEST(EagerSgd, AccumulatedLateGradientsAreInTheNextRoundEvenWhileTheirWorkerComputes) {
  const auto outcome = three_workers(4).run(EagerSgd({.late = LateGradient::accumulate}));
  // Rounds and arrivals are those of the test above. The gradient of 1.6 s is in the round of 2.5 s, those of 3.1 and
  // 3.2 s are in the round of 4 s, and that of 4.8 s is in the last round.
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 1 at 1.500 s: kept 1, dropped 0",
                             "step 2 at 3.000 s: kept 2, dropped 0",
                             "step 3 at 4.500 s: kept 3, dropped 0",
                             "step 4 at 6.000 s: kept 2, dropped 0",
                         }));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{4, 3, 1}));
  expect_exact_accounts(outcome);
}

TEST(EagerSgd, WhoComesWhileTheRoundIsUnderWayIsLateAndWaitsForItsResult) {
  SimulatedRun setup = three_workers(3);
  setup.delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.3, 0.4})};
  const auto outcome = setup.run(EagerSgd({.late = LateGradient::drop}));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{3, 0, 0}));
  EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>{0, 3, 3}));
  EXPECT_EQ(outcome.totals.accounts[2][Activity::discarded], from_seconds(3 * 1.4));
  EXPECT_EQ(outcome.totals.accounts[2][Activity::communicate], from_seconds(3 * 0.1));
  expect_exact_accounts(outcome);
}

TEST(EagerSgd, WhoContributesNothingCountsAsZeroInTheMean) {
  const auto outcome = three_workers(1).run(EagerSgd({.late = LateGradient::drop}));
  for (std::size_t i = 0; i < 4; ++i) {
    const double gradient = 1 - PullObjective::target({Rank{0}, 0, 0}, i);
    EXPECT_NEAR(outcome.parameters[i], 1 - 0.5 * gradient / 3, 1e-6);
  }
  expect_exact_accounts(outcome);
}

TEST(EagerSgd, EverySoManyRoundsWaitForAll) {
  const auto outcome = three_workers(9).run(EagerSgd({.late = LateGradient::drop, .synchronous_every = 3}));
  ASSERT_EQ(outcome.rounds.size(), 9u);
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(outcome.rounds[i].kept == 3, i % 3 == 2) << "round " << i;
  expect_exact_accounts(outcome);
}

TEST(EagerSgd, AccumulationLosesNothingButWhatIsUnderWayAtTheEnd) {
  for (const Kind kind : {Kind::solo, Kind::majority}) {
    const SimulatedRun setup{.workers = 8,
                             .network_s = 0.01,
                             .budget = {.steps = 500},
                             .delays = {exponential_delay(0.5)},
                             .objective = nullptr};
    const auto outcome = setup.run(EagerSgd({.activation = kind, .late = LateGradient::accumulate}));
    std::int64_t kept = 0;
    for (const StepRow& round : outcome.rounds) kept += round.kept;
    EXPECT_EQ(kept, sum(outcome.totals.kept));
    EXPECT_LT(sum(outcome.totals.dropped), 8);  // at most one per worker, and none from the last to arrive
    expect_exact_accounts(outcome);
  }
}

// Each round waits for a random rank, drawn independently of the workers' speed. Its place among the N arrivals is
// uniform: (N + 1) / 2 contribute on average, with a variance of (N^2 - 1) / 12. Places of different rounds are
// independent; the tolerance is four standard errors.
TEST(EagerSgd, InMajorityHalfHaveArrivedOnAverage) {
  constexpr int workers = 9, steps = 4000;
  const SimulatedRun setup{.workers = workers,
                           .network_s = 0,
                           .budget = {.steps = steps},
                           .delays = {exponential_delay(0.5)},
                           .objective = nullptr};
  const auto outcome = setup.run(EagerSgd({.activation = Kind::majority, .late = LateGradient::drop}));
  const double mean = static_cast<double>(sum(outcome.totals.kept)) / steps;
  EXPECT_NEAR(mean, (workers + 1) / 2.0, 4 * std::sqrt((workers * workers - 1) / 12.0 / steps));
  expect_exact_accounts(outcome);
}

// With exponential times alone, arrivals are a Poisson process of rate N, each from a random worker. A round takes
// place when a worker with the newest model arrives: one that has arrived since the last round, or has triggered it. So
// the number of arrivals in a round is that of draws before the first repetition in the birthday problem. The mean is
// Q(N) = sum over k of N! / ((N - k)! N^k), the second moment the sum of (2 k - 1) times these terms.
TEST(EagerSgd, SoloTakesABirthdayProblemsTimeUnderExponentialDelays) {
  constexpr int steps = 20000;
  for (const int workers : {1, 4, 16}) {
    const SimulatedRun setup{.workers = workers,
                             .base_s = 1e-6,
                             .network_s = 0,
                             .budget = {.steps = steps},
                             .delays = {exponential_delay(1.0)},
                             .objective = nullptr};
    const auto outcome = setup.run(EagerSgd({.late = LateGradient::drop}));
    double arrivals = 0, square = 0, term = 1;
    for (int k = 1; k <= workers; ++k) {
      arrivals += term;
      square += (2 * k - 1) * term;
      term *= static_cast<double>(workers - k) / workers;
    }
    // All begin with the initial model, so the first round is at the first arrival, which shortens the total by less
    // than one step. A sum of a random number of exponential times has the variance (mean + variance of the number).
    const double deviation = std::sqrt(arrivals + square - arrivals * arrivals) / workers;
    EXPECT_NEAR(to_seconds(outcome.rounds.back().end) / steps, arrivals / workers, 4 * deviation / std::sqrt(steps))
        << workers;
    EXPECT_EQ(sum(outcome.totals.kept), steps);  // only the first arrival
    EXPECT_NEAR(static_cast<double>(sum(outcome.totals.dropped)) / steps, arrivals - 1,
                4 * std::sqrt((square - arrivals * arrivals) / steps) + 0.001)
        << workers;
    expect_exact_accounts(outcome);
  }
}

TEST(EagerSgd, LostWorkersDoNotBlockSoloButAnAgreedRankThatIsLostIsExplained) {
  const SimulatedRun setup{.workers = 4,
                           .budget = {.steps = 40},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, HUGE_VAL, 0.1, HUGE_VAL})}};
  const auto outcome = setup.run(EagerSgd({.activation = Kind::solo}));
  EXPECT_EQ(outcome.rounds.size(), 40u);
  EXPECT_EQ(outcome.totals.kept[1] + outcome.totals.kept[3], 0);
  expect_exact_accounts(outcome);
  try {
    setup.run(EagerSgd({.activation = Kind::majority}));
    FAIL() << "some round of the 40 waits for worker 1 or 3";
  } catch (const RunFailure& failure) {
    EXPECT_THAT(failure.what(), testing::HasSubstr("workers 1, 3: waiting in a micro-batch that never ends"));
  }
}

TEST(EagerSgd, WorkersWithUnequalDataEndCleanly) {
  for (const Kind kind : {Kind::solo, Kind::majority}) {
    const SimulatedRun setup{.budget = {.steps = 100},
                             .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.35, 0.15})},
                             .data_of = {Step{3}, Step{5}, Step{8}}};
    const auto outcome = setup.run(EagerSgd({.activation = kind, .synchronous_every = 4}));
    for (std::size_t w = 0; w < 3; ++w)
      EXPECT_EQ(outcome.totals.kept[w] + outcome.totals.dropped[w], setup.data_of[w]->value());
    EXPECT_GE(outcome.totals.kept[2], 3);  // worker 2 alone, after the others have left
    expect_exact_accounts(outcome);
  }
}

std::string reading_of(const std::string& keys) {
  SettingsDocument document(parse_toml("[method]\n" + keys, "test.toml"));
  Settings settings = document.root().section("method");
  make_eager_sgd(settings, {.workers = 8});
  const std::string faults = document.check().report();
  return faults.empty() ? write_toml(document.resolved()) : faults;
}

TEST(EagerSgdSettings, SoloIsSynchronousEvery32ndRoundAsInTheReleasedCode) {
  using testing::HasSubstr;
  EXPECT_THAT(reading_of("activation = \"solo\"\nvariant = \"released\""), HasSubstr("synchronous_every = 32"));
  EXPECT_THAT(reading_of("activation = \"majority\"\nvariant = \"released\""), HasSubstr("synchronous_every = 0"));
  EXPECT_THAT(reading_of("activation = \"solo\"\nlate = \"drop\"\nsynchronous_every = 5"),
              HasSubstr("synchronous_every = 5"));
  EXPECT_THAT(reading_of(""), HasSubstr("activation"));
  EXPECT_THAT(reading_of("activation = \"solo\"\nsynchronous_every = -1"), HasSubstr("synchronous_every = -1"));
}

constexpr double factor = 0.5 / 3;  // rate over workers

// Computations take 1, 1.6 and 3.1 s, all-reduces 0.5 s. Worker 0 sets the pace: rounds begin at 1, 2.5, 4, 5.5 s, ...
SimulatedRun one_late_worker(int steps) {
  return {.network_s = 0.5,
          .rate = 0.5,
          .budget = {.steps = steps},
          .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.6, 2.1})}};
}

// A worker's gradient for parameter i, in double precision.
struct Pull {
  std::size_t i;
  double operator()(int worker, double theta, int step) const {
    return theta - PullObjective::target({Rank{worker}, step, 0}, i);
  }
};

// Worker 1 arrives just after each round (1.6, 3.2, 4.8, 6.4 s), so its gradient is in the next round, and it has
// missed one sum. Worker 2 arrives at 3.1 s, when it has missed two sums, and at 6.2 s. Its gradient of 6.2 s is taken
// at a model with the newer of these sums or with both, and is part of round 4.
TEST(EagerForms, ALateWorkerGoesOnFromTheNewestSumOrFromAllThatItHasMissed) {
  for (const MissedSums missed : {MissedSums::newest, MissedSums::all}) {
    const auto outcome = one_late_worker(6).run(EagerSgd({.missed = missed}));
    for (std::size_t i = 0; i < 4; ++i) {
      const Pull g{i};
      std::array<double, 7> theta{1};
      std::array<double, 6> sum{};
      const auto step = [&](int round, double late) {
        const auto r = static_cast<std::size_t>(round);
        sum[r] = g(0, theta[r], round) + late;
        theta[r + 1] = theta[r] - factor * sum[r];
      };
      step(0, 0);
      step(1, g(1, theta[0], 0));
      step(2, g(1, theta[1], 1) + g(2, theta[0], 0));
      step(3, g(1, theta[2], 2));
      const double behind = missed == MissedSums::newest ? theta[0] - factor * sum[1] : theta[2];
      step(4, g(1, theta[3], 3) + g(2, behind, 2));
      step(5, g(1, theta[4], 4));
      EXPECT_NEAR(outcome.parameters[i], theta[6], 1e-4);
    }
    expect_exact_accounts(outcome);
  }
}

// Round 3 waits for worker 2, which arrives at 6.2 s, too late for round 2, and at 9.3 s. Its model has missed only the
// first sum. After the average all workers have one model.
TEST(EagerForms, ModelsAreAveragedOnceAllHaveArrived) {
  const auto outcome = one_late_worker(4).run(EagerSgd({.average_every = 4}));
  EXPECT_EQ(outcome.log.back(), "step 4 at 9.800 s: kept 5, dropped 0");
  EXPECT_DOUBLE_EQ(to_seconds(outcome.totals.end), 10.3);  // with 0.5 s for the average
  for (std::size_t i = 0; i < 4; ++i) {
    const Pull g{i};
    const double sum_0 = g(0, 1, 0);
    const double theta_1 = 1 - factor * sum_0;
    const double sum_1 = g(0, theta_1, 1) + g(1, 1, 0);
    const double theta_2 = theta_1 - factor * sum_1, behind_2 = 1 - factor * sum_1;
    const double sum_2 = g(0, theta_2, 2) + g(1, theta_1, 1) + g(2, 1, 0);
    const double theta_3 = theta_2 - factor * sum_2, behind_3 = behind_2 - factor * sum_2;
    const double sum_3 = g(0, theta_3, 3) + g(1, theta_2, 2) + g(1, theta_3, 3) + g(2, behind_2, 2) + g(2, behind_3, 3);
    const double mean = (2 * (theta_3 - factor * sum_3) + behind_3 - factor * sum_3) / 3;
    EXPECT_NEAR(outcome.parameters[i], mean, 1e-4);
  }
  expect_exact_accounts(outcome);
}

TEST(EagerForms, AveragedAfterEveryStepTheyAreSynchronousSgd) {
  const SimulatedRun setup{.workers = 4, .network_s = 0, .budget = {.steps = 20}, .delays = {exponential_delay(1)}};
  const auto expected = setup.run(SyncSgd()), outcome = setup.run(EagerSgd({.average_every = 1}));
  EXPECT_EQ(outcome.log, expected.log);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(outcome.parameters[i], expected.parameters[i], 1e-4);
}

TEST(EagerForms, AveragesDoNotWaitForWorkersThatHaveLeft) {
  for (const auto activation : {EagerOptions::Activation::solo, EagerOptions::Activation::majority}) {
    const SimulatedRun setup{.budget = {.steps = 100},
                             .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.35, 0.15})},
                             .data_of = {Step{8}, Step{3}, Step{5}}};
    const auto outcome = setup.run(EagerSgd({.activation = activation, .average_every = 2}));
    for (std::size_t w = 0; w < 3; ++w)
      EXPECT_EQ(outcome.totals.kept[w] + outcome.totals.dropped[w], setup.data_of[w]->value());
    expect_exact_accounts(outcome);
  }
}

TEST(EagerForms, SetWhatIsLeftOut) {
  using testing::AllOf;
  using testing::HasSubstr;
  const auto reading_of = [](const std::string& keys) {
    return read_method("algorithm = \"eager-sgd\"\nactivation = \"solo\"\n" + keys).resolved;
  };
  EXPECT_THAT(reading_of(""), AllOf(HasSubstr("late = \"accumulate\""), HasSubstr("missed = \"newest\""),
                                    HasSubstr("synchronous_every = 0"), HasSubstr("average_every = 100")));
  EXPECT_THAT(reading_of("variant = \"released\""),
              AllOf(HasSubstr("late = \"drop\""), HasSubstr("missed = \"newest\""), HasSubstr("synchronous_every = 32"),
                    HasSubstr("average_every = 0")));
  EXPECT_THAT(reading_of("variant = \"replayed\""),
              AllOf(HasSubstr("late = \"accumulate\""), HasSubstr("missed = \"all\""),
                    HasSubstr("synchronous_every = 32"), HasSubstr("average_every = 0")));
  EXPECT_THAT(reading_of("variant = \"released\"\nlate = \"accumulate\"\naverage_every = 7"),
              AllOf(HasSubstr("late = \"accumulate\""), HasSubstr("average_every = 7")));
}

}  // namespace
}  // namespace syncopate
