#include "algorithms/local_sgd/hierarchical_sgd.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

HierarchicalSgd groups_of(int size, int group_period, int period, const StatePolicies& policies = {}) {
  return HierarchicalSgd({size, Step{group_period}}, make_constant_period(period), policies);
}
LocalSgd every(int steps, const StatePolicies& policies = {}) {
  return LocalSgd(make_constant_period(steps), policies);
}

TEST(HierarchicalSgd, OneGroupOfAllEqualsLocalSgdWithTheGroupsPeriodBitForBit) {
  for (const StatePolicy moments : {StatePolicy::keep, StatePolicy::average, StatePolicy::reset}) {
    const StatePolicies policies{.average = {.moments = {moments, moments}}};
    const SimulatedRun setup{.workers = 4, .micro_batches = 2, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 22}};
    EXPECT_EQ(setup.run(groups_of(4, 2, 8, policies)).parameters, setup.run(every(2, policies)).parameters);
  }
}

TEST(HierarchicalSgd, GroupsOfOneEqualLocalSgdWithThePeriod) {
  const SimulatedRun setup{.workers = 4, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 22}};
  const auto hierarchical = setup.run(groups_of(1, 2, 8));
  const auto local = setup.run(every(8));
  EXPECT_EQ(hierarchical.parameters, local.parameters);
  EXPECT_EQ(hierarchical.log, local.log);  // a single worker has nothing to send
  EXPECT_EQ(hierarchical.totals.bytes, local.totals.bytes);
}

// Groups {0, 1}, {2, 3} and {4} average after steps 2, 4 and 8, and all workers after 6 and 9.
TEST(HierarchicalSgd, FollowsTheRecursionWithAnUnequalLastGroup) {
  constexpr int workers = 5, steps = 9;
  const SimulatedRun setup{.workers = workers, .rate = 0.1, .budget = {.steps = steps}};
  const auto outcome = setup.run(groups_of(2, 2, 6));
  for (std::size_t i = 0; i < 4; ++i) {
    std::vector<double> theta(workers, 1.0);
    for (int step = 0; step < steps; ++step) {
      for (int k = 0; k < workers; ++k) theta[k] -= 0.1 * (theta[k] - PullObjective::target({Rank{k}, step, 0}, i));
      const int done = step + 1;
      if (done == 6 || done == 9) {
        theta.assign(workers, (theta[0] + theta[1] + theta[2] + theta[3] + theta[4]) / workers);
      } else if (done % 2 == 0) {
        theta[0] = theta[1] = (theta[0] + theta[1]) / 2;
        theta[2] = theta[3] = (theta[2] + theta[3]) / 2;
      }
    }
    EXPECT_NEAR(outcome.parameters[i], theta[0], 1e-5 * std::abs(theta[0]));
  }
}

// Steps take 1 s, 1.25 s, 2 s and 1 s; an average takes 0.5 s. The groups are {0, 1} and {2, 3}.
TEST(HierarchicalSgd, AGroupWaitsForItsOwnSlowestOnly) {
  const SimulatedRun setup{.workers = 4,
                           .budget = {.steps = 5},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0, 0.0})}};
  const auto outcome = setup.run(groups_of(2, 1, 3));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             // Group {2, 3} averages until 2.5 s and 5 s. After 2 s more, all average.
                             "step 3 at 7.500 s: kept 12, dropped 0",
                             "step 5 at 12.500 s: kept 8, dropped 0",
                         }));
  // Worker 0 waits 0.25 s for worker 1 before each group average. It also waits for worker 2 before an average of all:
  // from 2 x 1.75 + 1 = 4.5 s to 7 s, and then from 1.75 + 1 = 2.75 s to 4.5 s after the first one.
  EXPECT_EQ(outcome.totals.accounts[0][Activity::wait], from_seconds(3 * 0.25 + 2.5 + 1.75));
  EXPECT_EQ(outcome.totals.accounts[0][Activity::communicate], from_seconds(5 * 0.5));
}

TEST(HierarchicalSgd, SendsWithinGroupsAndOverAll) {
  // An all-reduce over n workers sends 2 (n - 1) x 16 bytes. In 12 steps there are two averages of all, and two of each
  // group in each period of 6.
  const SimulatedRun setup{.workers = 5, .budget = {.steps = 12}};
  const std::int64_t groups = 2 * 16 + 2 * 16 + 0;
  EXPECT_EQ(setup.run(groups_of(2, 2, 6)).totals.bytes, Bytes{2 * (2 * groups + 2 * 4 * 16)});
}

// Steps take the times of the test above. Group {0, 1} averages until 4.25 s, 8.5 s and, because both workers stop in
// their third round, 11.5 s. Group {2, 3} averages until 6.5 s and, because worker 2 stops after 10.5 s, 11 s. The
// workers have then taken 8, 8, 5 and 6 steps.
TEST(HierarchicalSgd, EndsWithABudgetOfSeconds) {
  const SimulatedRun setup{.workers = 4,
                           .budget = {.seconds = 10},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0, 0.0})}};
  const std::vector<std::string> expected = {"step 8 at 12.000 s: kept 27, dropped 0"};
  EXPECT_EQ(setup.run(groups_of(2, 3, 30)).log, expected);
  const HierarchicalSgd without_end({2, Step{3}}, make_swap_period(0));
  EXPECT_EQ(setup.run(without_end).log, expected);
}

TEST(HierarchicalSgd, NeedsNoModelForTheTimesAlone) {
  const SimulatedRun setup{.workers = 4, .budget = {.steps = 4}, .objective = nullptr};
  EXPECT_EQ(setup.run(groups_of(2, 1, 2)).log,
            (std::vector<std::string>{"step 2 at 3.000 s: kept 8, dropped 0", "step 4 at 6.000 s: kept 8, dropped 0"}));
}

TEST(HierarchicalSgd, ReadsItsKeys) {
  const auto reading = read_method(R"(algorithm = "hierarchical-sgd"
group_size = 2
group_period = 2
period = { rule = "constant", steps = 6 }
moments = "reset")");
  EXPECT_EQ(reading.faults, "");
  const SimulatedRun setup{.workers = 4, .momentum = 0.9, .budget = {.steps = 8}};
  EXPECT_EQ(
      setup.run(*reading.algorithm).parameters,
      setup.run(groups_of(2, 2, 6, {.average = {.moments = {StatePolicy::reset, StatePolicy::reset}}})).parameters);
  EXPECT_THAT(read_method(R"(algorithm = "hierarchical-sgd"
group_size = 5
group_period = 0
period = { rule = "constant", steps = -1 })")
                  .faults,
              AllOf(HasSubstr("group_size = 5"), HasSubstr("group_period = 0"), HasSubstr("steps = -1")));
}

}  // namespace
}  // namespace syncopate
