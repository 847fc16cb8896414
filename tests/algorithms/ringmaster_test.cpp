#include "algorithms/asynchronous/ringmaster.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <vector>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "tests/algorithms/duration_laws.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/three_workers.hpp"

namespace syncopate {
namespace {

TEST(Ringmaster, WithoutStopsEqualsAsynchronousSgdThatDropsStaleGradientsBitForBit) {
  for (const int threshold : {1, 2, 3, 5}) {
    SimulatedRun setup = three_workers(10);
    setup.micro_batches = 2;
    setup.momentum = 0.9;
    const auto async = setup.run(AsyncSgd({.maximum_staleness = Step{threshold - 1}}));
    const auto ringmaster = setup.run(Ringmaster(threshold, LateWork::finish));
    EXPECT_EQ(ringmaster.parameters, async.parameters);
    EXPECT_EQ(ringmaster.log, async.log);
    EXPECT_EQ(ringmaster.totals.bytes, async.totals.bytes);
  }
}

TEST(Ringmaster, WithAThresholdThatNothingReachesEqualsAsynchronousSgdBitForBit) {
  for (const LateWork late : {LateWork::cancel, LateWork::finish})
    for (const auto weight : {StalenessWeight::none, StalenessWeight::inverse}) {
      SimulatedRun setup = three_workers(10);
      setup.momentum = 0.9;
      const auto async = setup.run(AsyncSgd({.rate = {.weight = weight}}));
      const auto ringmaster = setup.run(Ringmaster(std::numeric_limits<std::int64_t>::max(), late, {.weight = weight}));
      EXPECT_EQ(ringmaster.parameters, async.parameters);
      EXPECT_EQ(ringmaster.log, async.log);
      EXPECT_EQ(ringmaster.totals.bytes, async.totals.bytes);
    }
}

// The threshold is R = 2. Updates come at 1.5 s (worker 0) and 1.6 s (worker 1). Worker 2 is then two updates late, and
// is stopped by a model that arrives at 1.85 s. It is stopped again by the updates at 3.2, 4.8 and 6.4 s.
TEST(Ringmaster, StopsWhatComesToTheThreshold) {
  auto objective = std::make_shared<PullObjective>();
  SimulatedRun setup = three_workers(3);
  setup.objective = objective;
  const auto outcome = setup.run(Ringmaster(2));
  EXPECT_EQ(outcome.log, (Log{
                             "step 1 at 3.000 s: kept 3, dropped 0",
                             "step 2 at 4.800 s: kept 3, dropped 0",
                             "step 3 at 7.500 s: kept 3, dropped 0",
                         }));
  EXPECT_EQ(outcome.totals.kept, (Counts{5, 4, 0}));
  EXPECT_EQ(outcome.totals.dropped, (Counts{0, 1, 5}));  // four are stopped, two are in progress at the end
  EXPECT_EQ(outcome.totals.staleness, (Counts{1, 8}));
  EXPECT_EQ(outcome.totals.bytes, Bytes{(9 + 3 + 8 + 4) * 16});  // gradients; models at first, as answers, to stop
  EXPECT_EQ(objective->evaluations, 9);
  expect_accounts_sum_to_the_time(outcome.totals);
}

// With R = 1, worker 0's update at 1.5 s stops the others. But worker 1's gradient has left at 1.35 s: it is dropped on
// arrival and not answered. Worker 1 continues from the model that stopped it.
TEST(Ringmaster, AGradientThatCrossesItsStopIsDroppedAndNotAnswered) {
  const auto outcome = three_workers(1).run(Ringmaster(1));
  EXPECT_EQ(outcome.log, Log{"step 1 at 4.500 s: kept 3, dropped 2"});
  EXPECT_EQ(outcome.totals.kept, (Counts{3, 0, 0}));
  EXPECT_EQ(outcome.totals.messages, 3 + 2 + (3 + 2 + 2 * 2));  // gradients; models at first, as answers, to stop
  expect_accounts_sum_to_the_time(outcome.totals);
}

TEST(Ringmaster, UsesNoGradientOfADelayOfTheThresholdOrMore) {
  for (const LateWork late : {LateWork::cancel, LateWork::finish})
    for (const int threshold : {1, 4, 20}) {
      const SimulatedRun setup{.workers = 12,
                               .network_s = 0.05,
                               .budget = {.steps = 200},
                               .delays = {exponential_law()},
                               .objective = nullptr};
      const auto outcome = setup.run(Ringmaster(threshold, late));
      EXPECT_LE(outcome.totals.staleness.size(), static_cast<std::size_t>(threshold));
      EXPECT_EQ(sum(outcome.totals.kept), 200 * 12);
      expect_exact_accounts(outcome);
    }
}

// Two workers take 1 s and one takes 10 s, without communication. The slow worker is stopped at a delay of 4, so it
// gives nothing and delays nobody: 3 updates take 1.5 s.
TEST(Ringmaster, ASlowWorkerThatIsStoppedAgainAndAgainDelaysNobody) {
  const SimulatedRun setup{.workers = 3,
                           .network_s = 0,
                           .budget = {.steps = 40},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.0, 9.0})},
                           .objective = nullptr};
  const auto outcome = setup.run(Ringmaster(4));
  EXPECT_EQ(outcome.totals.end, start_time + from_seconds(40 * 1.5));
  EXPECT_EQ(outcome.totals.kept, (Counts{60, 60, 0}));
}

TEST(Ringmaster, EndsWhenAllWorkersHaveLeft) {
  for (const LateWork late : {LateWork::cancel, LateWork::finish}) {
    SimulatedRun setup = three_workers(20);
    setup.data_of = {3, 2, 2};
    const auto outcome = setup.run(Ringmaster(2, late));
    EXPECT_EQ(outcome.totals.kept[0] + outcome.totals.dropped[0], 3);
    expect_accounts_sum_to_the_time(outcome.totals);
  }
}

// A worker that loses its state asks for the newest model, or adopts one that has arrived, and continues.
TEST(Ringmaster, GoesOnWithAWorkerThatHasLostItsState) {
  for (const LateWork late : {LateWork::cancel, LateWork::finish}) {
    SimulatedRun setup = three_workers(10);
    setup.outages = std::make_shared<OutagePlan>(
        1, std::vector<OutageEntry>{
               {.workers = {Rank{0}}, .when = ScheduledOutage{from_seconds(2), from_seconds(1)}, .loses_state = true}});
    const auto outcome = setup.run(Ringmaster(3, late));
    EXPECT_EQ(sum(outcome.totals.kept), 30);
    EXPECT_GE(outcome.totals.kept[0], 10);
    expect_accounts_sum_to_the_time(outcome.totals);
  }
}

TEST(Ringmaster, NeedsAThresholdOfAtLeastOne) {
  EXPECT_NE(read_method("algorithm = \"ringmaster\"\ndelay_threshold = 0").faults, "");
  EXPECT_NE(read_method("algorithm = \"ringmaster\"").faults, "");
  EXPECT_EQ(read_method("algorithm = \"ringmaster\"\ndelay_threshold = 1\nlate = \"finish\"").faults, "");
}

}  // namespace
}  // namespace syncopate
