// Where a virtual clock ends, 292 years after the start: a clear failure, on fibers as in lockstep, never a deadlock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "results/summary.hpp"
#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

std::string failure_of(SimulatedRun run, bool in_lockstep) {
  run.objective = nullptr;
  run.in_lockstep = in_lockstep;
  try {
    run.run(SyncSgd());
  } catch (const RunFailure& failure) {
    return failure.what();
  }
  return "none";
}

// As if every message were infinitely long.
class EndlessNetwork : public NetworkModel {
 public:
  Duration collective(const CollectiveCall&) const override { return longest_duration; }
  Duration message(const MessageCall&) const override { return longest_duration; }
};

TEST(LongTimes, ANetworkThatTakesForEverEndsTheClock) {
  const SimulatedRun run{.workers = 3, .network = std::make_shared<EndlessNetwork>(), .budget = {.steps = 10}};
  for (const bool in_lockstep : {false, true})
    EXPECT_EQ(failure_of(run, in_lockstep),
              "the virtual clock of the cluster has reached its end, after 9223372037 s "
              "(292 years)");
}

// 6 x 32 years are no micro-batch that never ends, though they are more than 146 years.
TEST(LongTimes, AStepLongerThanHalfTheClockIsAStep) {
  const SimulatedRun run{.workers = 2, .micro_batches = 6, .base_s = 1e9, .budget = {.steps = 1}};
  const SimulatedRun two{.workers = 2, .micro_batches = 6, .base_s = 1e9, .budget = {.steps = 2}};
  for (const bool in_lockstep : {false, true}) {
    EXPECT_EQ(failure_of(run, in_lockstep), "none");
    EXPECT_THAT(failure_of(two, in_lockstep), HasSubstr("has reached its end"));
  }
}

TEST(LongTimes, AMicroBatchWithoutEndIsNamedAsTheReason) {
  const SimulatedRun run{
      .workers = 2,
      .delays = {std::make_shared<DelayOfWorker>(std::vector<double>{0, std::numeric_limits<double>::infinity()})}};
  for (const bool in_lockstep : {false, true})
    EXPECT_THAT(failure_of(run, in_lockstep),
                testing::AllOf(testing::StartsWith("nobody can go on after 0.000000 s: a micro-batch that takes more "
                                                   "than 146 years never ends"),
                               HasSubstr("worker 1: waiting in a micro-batch that never ends")));
}

// What is summed over the workers counts the time of each.
TEST(LongTimes, TheTimeThatASumTookStopsAtTheLongest) {
  Gradient sum(nullptr, MicroBatch{}, Duration{5});
  sum += Gradient(nullptr, MicroBatch{}, Duration::max() - Duration{7});
  EXPECT_EQ(sum.compute_time(), Duration::max() - Duration{2});
  sum += Gradient(nullptr, MicroBatch{}, Duration{3});
  EXPECT_EQ(sum.compute_time(), Duration::max());
  EXPECT_EQ(sum.micro_batches(), 3);
}

// Each worker's clock holds 292 years; three of them have 600.
TEST(LongTimes, SecondsOfAllWorkersTogetherMayBeMore) {
  constexpr double worker_s = 200 * 365.25 * 24 * 3600;
  RunSummary summary;
  for (int i = 0; i < 3; ++i) summary.accounts.emplace_back()[Activity::compute] = from_seconds(worker_s / 2) * 2;
  const auto json = nlohmann::json::parse(to_json(summary));
  EXPECT_DOUBLE_EQ(json["worker_seconds"]["summed"]["compute"].get<double>(), 3 * worker_s);
  EXPECT_DOUBLE_EQ(json["worker_seconds"]["summed"]["total"].get<double>(), 3 * worker_s);
}

}  // namespace
}  // namespace syncopate
