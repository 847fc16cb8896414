// EDiT whose rounds end by time (A-EDiT): when they end, by how many steps of whom, and with what data.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/algorithms/edit_options.hpp"
#include "tests/algorithms/kicked_workers.hpp"
#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {
namespace {

using From = TimedRounds::CountedFrom;

// Micro-batches of 1 s: 4 steps in 4 s. The last round is of 2.
TEST(EditByTime, ByTimeAndWithEqualWorkersEqualsTheSameBySteps) {
  SimulatedRun setup{.workers = 4, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 18}};
  const PenaltyOptions penalty{.outlier_factor = 1, .outlier_warmup = 2, .temperature = 5, .clip_norm = 8};
  const auto timed = setup.run(Edit(by_time(4, penalty)));
  EXPECT_EQ(timed.parameters, setup.run(Edit(by_steps(4, penalty))).parameters);
  EXPECT_EQ(timed.log, setup.run(Edit(by_steps(4, penalty))).log);
  EditOptions warmed = by_time(4, penalty), counted = by_steps(4, penalty);
  warmed.timed.warmup_steps = 6;
  counted.period = make_post_local_period(6, 4);
  EXPECT_EQ(setup.run(Edit(warmed)).log, setup.run(Edit(counted)).log);
  EXPECT_EQ(setup.run(Edit(warmed)).parameters, setup.run(Edit(counted)).parameters);
  setup.network_s = 0;  // so that arrivals are the ends of synchronisations
  EditOptions from_arrival = by_time(4, penalty);
  from_arrival.timed.counted_from = From::arrival;
  EXPECT_EQ(setup.run(Edit(from_arrival)).parameters, timed.parameters);
}

// An all-gather and an average of 0.5 s each.
TEST(EditByTime, ByStepsWaitsForTheSlowest) {
  EXPECT_EQ(uneven.run(Edit(by_steps(4))).log, (std::vector<std::string>{"step 4 at 9.000 s: kept 12, dropped 0",
                                                                         "step 8 at 18.000 s: kept 12, dropped 0"}));
}

TEST(EditByTime, ByTimeEndsARoundWithTheStepThatIsThenUnderWay) {
  const auto outcome = uneven.run(Edit(by_time(3.5)));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{"step 4 at 5.200 s: kept 9, dropped 3",
                                                   "step 8 at 10.400 s: kept 9, dropped 3"}));
  EXPECT_EQ(outcome.totals.accounts[0][Activity::wait], from_seconds(2 * 0.2));
  EXPECT_EQ(outcome.totals.accounts[1][Activity::wait], Duration{});
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{8, 6, 4}));
}

// From arrivals at 4, 4.2 and 4 s: the times are over at 7.5, 7.7 and 7.5 s, in steps that end at 8.2, 8.0 and 9.2 s.
// So the fast fall behind: in the third round they take 2, 1 and 2 steps, from then on 1, 1 and 2.
TEST(EditByTime, TimeMayCountFromAWorkersOwnArrival) {
  EditOptions options = by_time(3.5);
  options.timed.counted_from = From::arrival;
  SimulatedRun setup = uneven;
  setup.budget.steps = Step{11};
  EXPECT_EQ(
      setup.run(Edit(options)).log,
      (std::vector<std::string>{"step 4 at 5.200 s: kept 9, dropped 3", "step 7 at 10.200 s: kept 7, dropped 2",
                                "step 9 at 15.200 s: kept 5, dropped 1", "step 11 at 20.200 s: kept 4, dropped 2"}));
}

// 9 steps by 4.2 s, which the all-gather tells by 4.7 s; 9 more by 8.9 s.
TEST(EditByTime, ASynchronisationWithTooFewStepsIsPutOff) {
  EditOptions options = by_time(3.5);
  options.timed.minimum_steps = 9;
  EXPECT_EQ(uneven.run(Edit(options)).log, uneven.run(Edit(by_time(3.5))).log);
  options.timed.minimum_steps = 10;
  const auto outcome = uneven.run(Edit(options));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{"step 8 at 9.900 s: kept 18, dropped 6"}));
  EXPECT_EQ(outcome.totals.collectives, 3);
}

// Its second round goes on with its third sample, not with its fifth, which its step would have.
TEST(EditByTime, ByTimeAWorkerTakesItsDataInTurn) {
  SimulatedRun setup = uneven;
  const auto objective = std::make_shared<PullObjective>();
  setup.objective = objective;
  setup.run(Edit(by_time(3.5)));
  for (int step = 0; step < 8; ++step) EXPECT_EQ(objective->evaluated.contains({Rank{2}, Step{step}, 0}), step < 4);
}

// What SlowMo divides by is the mean rate of all steps, so that all go on with one model.
TEST(EditByTime, ByTimeAllGoOnWithOneModel) {
  SimulatedRun setup = uneven;
  setup.learning_rate = std::make_shared<LearningRate>(
      LearningRate::Options{.shape = LearningRate::Shape::linear, .peak = 0.2, .total_steps = 12});
  EditOptions options = by_time(3.5, {.temperature = 6});
  options.outer = make_slowmo(0.9, 0.5);
  const Edit method(options);
  const WithLastModels recorded(method, 3);
  setup.run(recorded);
  EXPECT_EQ(recorded.models[1], recorded.models[0]);
  EXPECT_EQ(recorded.models[2], recorded.models[0]);
}

}  // namespace
}  // namespace syncopate
