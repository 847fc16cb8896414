// What becomes of workers that are late for eager SGD's rounds: the sums that they have missed, and their drift.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "algorithms/quorum/eager_sgd.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

constexpr double factor = 0.5 / 3;  // rate over workers

// Computations of 1, 1.6 and 3.1 s, all-reduces of 0.5 s. Worker 0 sets the pace: rounds begin at 1, 2.5, 4, 5.5 s, ...
SimulatedRun three_workers(int steps) {
  return {.network_s = 0.5,
          .rate = 0.5,
          .budget = {.steps = steps},
          .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.6, 2.1})}};
}

// Of one parameter, in double precision.
struct Pull {
  std::size_t i;
  double operator()(int worker, double theta, int step) const {
    return theta - PullObjective::target({Rank{worker}, step, 0}, i);
  }
};

// Worker 1 comes just after each round (1.6, 3.2, 4.8, 6.4 s), so that its gradient is in the next one, and it has
// missed one sum. Worker 2 comes at 3.1 s, when it has missed two sums, and at 6.2 s; what it brings then is from
// where the first of them has left it, and is part of round 4.
TEST(EagerForms, ALateWorkerGoesOnFromTheNewestSumOrFromAllThatItHasMissed) {
  for (const MissedSums missed : {MissedSums::newest, MissedSums::all}) {
    const auto outcome = three_workers(6).run(EagerSgd({.missed = missed}));
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

// Round 3 waits for worker 2, which comes late for round 2 at 6.2 s and in time for this one at 9.3 s. Its model has
// missed the first sum alone; then all have the mean.
TEST(EagerForms, ModelsAreAveragedOnceAllHaveArrived) {
  const auto outcome = three_workers(4).run(EagerSgd({.average_every = 4}));
  EXPECT_EQ(outcome.log.back(), "step 4 at 9.800 s: kept 5, dropped 0");
  EXPECT_DOUBLE_EQ(to_seconds(outcome.totals.end), 10.3);  // another 0.5 s for the average
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
