// Sleeps and trailing work between micro-batches: whole timelines of two workers, by hand.
#include <gmock/gmock.h>

#include <stdexcept>

#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;

// Three micro-batches of 1 s; worker 0 sleeps 0.4 s after each, worker 1 2 s; an all-reduce takes 0.5 s.
SimulatedRun sleepers(double trailing_s, int steps = 2) {
  return {.workers = 2,
          .micro_batches = 3,
          .budget = {.steps = steps},
          .pauses = std::make_shared<Pauses>(1, trailing_s,
                                             std::vector<std::shared_ptr<const DelayProcess>>{
                                                 std::make_shared<DelayOfWorker>(std::vector<double>{0.4, 2})}),
          .objective = nullptr};
}

std::vector<std::string> log_of(const SimulatedRun& setup, const Algorithm& algorithm) {
  const auto outcome = setup.run(algorithm);
  expect_exact_accounts(outcome);
  return outcome.log;
}

TEST(Pauses, TheLastSleepOfAStepFollowsItsAllReduce) {
  // Worker 1: three micro-batches, two sleeps: 7 s; then the all-reduce, the third sleep, and the same again.
  EXPECT_THAT(log_of(sleepers(0), SyncSgd()),
              ElementsAre("step 1 at 7.500 s: kept 6, dropped 0", "step 2 at 17.000 s: kept 6, dropped 0"));
}

TEST(Pauses, ASleepHidesTrailingWorkThatIsShorter) {
  // The 0.25 s are seen before the all-reduce alone; of 0.7 s, worker 0's sleeps hide 0.4 s, worker 1's all.
  EXPECT_THAT(log_of(sleepers(0.25), SyncSgd()),
              ElementsAre("step 1 at 7.750 s: kept 6, dropped 0", "step 2 at 17.500 s: kept 6, dropped 0"));
  SimulatedRun awake = sleepers(0.7);
  awake.pauses = std::make_shared<Pauses>(1, 0.7, std::vector<std::shared_ptr<const DelayProcess>>{});
  EXPECT_THAT(log_of(awake, SyncSgd()),
              ElementsAre("step 1 at 5.600 s: kept 6, dropped 0", "step 2 at 11.200 s: kept 6, dropped 0"));
}

TEST(Pauses, ADeadlineCutsASleepButNotTrailingWork) {
  // Worker 1 is awake at 2.5 s with one micro-batch; worker 0 has finished its second at 2.4 s, which trails on.
  const auto drop = [](Preempt preempt) { return DropCompute(from_seconds(2.5), preempt, 0.5); };
  for (const Preempt preempt : {Preempt::discard, Preempt::microbatch, Preempt::backward, Preempt::layer}) {
    EXPECT_THAT(log_of(sleepers(0), drop(preempt)),
                ElementsAre("step 1 at 3.000 s: kept 3, dropped 3", "step 2 at 6.000 s: kept 3, dropped 3"));
    EXPECT_THAT(log_of(sleepers(0.25), drop(preempt)),
                ElementsAre("step 1 at 3.150 s: kept 3, dropped 3", "step 2 at 6.300 s: kept 3, dropped 3"));
  }
  // At 2.2 s worker 0's second one is under way since 1.4 s: lost, ended, or lost but for its forward pass until 1.9 s.
  const auto first = [&](Preempt preempt, double threshold_s) {
    return log_of(sleepers(0, 1), DropCompute(from_seconds(threshold_s), preempt, 0.5)).front();
  };
  EXPECT_EQ(first(Preempt::discard, 2.2), "step 1 at 2.700 s: kept 2, dropped 4");
  EXPECT_EQ(first(Preempt::layer, 2.2), "step 1 at 2.700 s: kept 2, dropped 4");
  EXPECT_EQ(first(Preempt::microbatch, 2.2), "step 1 at 2.900 s: kept 3, dropped 3");
  EXPECT_EQ(first(Preempt::backward, 2.2), "step 1 at 2.900 s: kept 3, dropped 3");
  EXPECT_EQ(first(Preempt::backward, 1.8), "step 1 at 2.400 s: kept 2, dropped 4");
}

TEST(Pauses, LocalStepsHaveThemToo) {
  // Two local steps of worker 1: six micro-batches, five sleeps; the sixth follows the average.
  const LocalSgd algorithm(make_constant_period(2), {});
  EXPECT_THAT(log_of(sleepers(0, 4), algorithm),
              ElementsAre("step 2 at 16.500 s: kept 12, dropped 0", "step 4 at 35.000 s: kept 12, dropped 0"));
}

TEST(Pauses, SleepsAddUpAndDrawFromStreamsOfTheirOwn) {
  const auto uniform = uniform_delay(0, 1);
  const auto at = [](const Pauses& pauses, std::uint32_t index) { return pauses.sleep(Rank{3}, Step{5}, index); };
  const Pauses one(7, 0, {uniform}), later_stream(7, 0, {uniform}, 1), both(7, 0, {uniform, uniform});
  EXPECT_NEAR(to_seconds(at(both, 2)), to_seconds(at(one, 2) + at(later_stream, 2)), 2e-9);
  EXPECT_NE(at(one, 2), at(later_stream, 2));
  EXPECT_NE(at(one, 2), at(one, 3));
  EXPECT_EQ(at(Pauses(7, 0, {constant_delay(-1)}), 0), Duration{});  // nobody sleeps for less than nothing
  EXPECT_THROW(Pauses(1, -0.1, {}), std::invalid_argument);
  EXPECT_THROW(Pauses(1, 0, {nullptr}), std::invalid_argument);
  EXPECT_THROW(Pauses(1, 0, {uniform}, 255), std::invalid_argument);
}

}  // namespace
}  // namespace syncopate
