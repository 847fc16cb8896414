// How rounds of asynchronous Local SGD end that do not go as planned: grace windows, data and budgets that end within
// them, workers that leave, are down, or lose their state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "algorithms/asynchronous/async_local_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/three_workers.hpp"

namespace syncopate {
namespace {

std::shared_ptr<const OutagePlan> outage(int worker, double at_s, double duration_s, bool loses_state) {
  return std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{worker}},
                                   .when = ScheduledOutage{from_seconds(at_s), from_seconds(duration_s)},
                                   .loses_state = loses_state}});
}

// Of the updates.
void expect_times(const SimulatedRun::Outcome& outcome, const std::vector<double>& expected_s) {
  std::vector<double> times_s;
  for (const Publication& publication : outcome.publications) times_s.push_back(to_seconds(publication.time));
  EXPECT_THAT(times_s, testing::Pointwise(testing::DoubleNear(1e-9), expected_s));
}

// Steps of 1, 1.1 and 2.65 s, with messages 1.5, 1.6 and 3.15 s.
SimulatedRun with_window(int steps) {
  return {.network_s = 0.25,
          .budget = {.steps = steps},
          .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, 1.65})}};
}
AsyncLocalOptions grace(double seconds, Step local_steps = 1) {
  return {.local_steps = local_steps, .grace = from_seconds(seconds)};
}

TEST(GraceWindow, WhoComesWithinItGoesOnFromTheSameModelAtItsEnd) {
  const auto outcome = with_window(2).run(AsyncLocalSgd(grace(0.2)));
  // Workers 0 and 1 come at 1.5 and 1.6 s, and get their models at 1.7 s. Worker 2 comes at 3.15 s; with the other two,
  // at 3.2 and 3.3 s, all are there, and go on at once: worker 0 comes at 4.8 s.
  expect_times(outcome, {1.5, 1.6, 3.15, 3.2, 3.3, 4.8});
  EXPECT_EQ(outcome.totals.staleness, (Counts{2, 2, 2}));
  EXPECT_EQ(outcome.log, (Log{"step 1 at 3.150 s: kept 3, dropped 0", "step 2 at 4.800 s: kept 3, dropped 0"}));
  expect_exact_accounts(outcome);
}

TEST(GraceWindow, OfNoLengthIsNone) {
  EXPECT_EQ(with_window(4).run(AsyncLocalSgd(grace(0))).log, with_window(4).run(AsyncLocalSgd({})).log);
}

TEST(GraceWindow, IsNotKeptOpenForWorkersThatHaveLeft) {
  SimulatedRun setup = with_window(3);
  setup.data_of = {std::nullopt, 1, 1};
  const auto outcome = setup.run(AsyncLocalSgd(grace(100)));
  // The window of 1.5 s ends at 3.15 s, when all have come, of whom two leave; then worker 0 is always alone.
  expect_times(outcome, {1.5, 1.6, 3.15, 4.65, 6.15, 7.65, 9.15, 10.65, 12.15});
  EXPECT_EQ(outcome.totals.kept, (Counts{7, 1, 1}));
  expect_exact_accounts(outcome);
}

TEST(GraceWindow, EndsWithTheLastWorkers) {
  SimulatedRun setup = with_window(30);
  setup.data_of = {2, 1, 1};
  for (const double seconds : {0.2, 100.0}) {
    const auto outcome = setup.run(AsyncLocalSgd(grace(seconds)));
    EXPECT_EQ(outcome.totals.kept, (Counts{2, 1, 1})) << seconds;
    EXPECT_LT(to_seconds(outcome.totals.end), 5) << seconds;
    expect_exact_accounts(outcome);
  }
}

// Worker 1 is down from 1 to 61 s, with or without its state; the window that worker 0 opens at 1.5 s lasts 2 s.
TEST(GraceWindow, DoesNotWaitBeyondItsEndForAWorkerThatIsDown) {
  for (const bool loses_state : {false, true}) {
    SimulatedRun setup = with_window(2);
    setup.workers = 2;
    setup.delays.clear();
    setup.outages = outage(1, 1, 60, loses_state);
    const auto outcome = setup.run(AsyncLocalSgd(grace(2)));
    expect_times(outcome, {1.5, 5, 8.5, 12});
    EXPECT_EQ(outcome.totals.kept, (Counts{4, 0}));
    expect_exact_accounts(outcome);
  }
}

// One worker: the model comes at 0.25 s. Two steps and a quarter are lost at 2.5 s; up again at 2.75 s it asks, and has
// the model at 3.25 s. Its three steps are of the samples that come next: nobody takes the two lost ones again.
TEST(AsyncLocalRounds, ALostStateTakesTheRoundAndTheMomentsWithIt) {
  constexpr double rate = 0.1, momentum = 0.6;
  const SimulatedRun setup{.workers = 1,
                           .network_s = 0.25,
                           .momentum = momentum,
                           .rate = rate,
                           .budget = {.steps = 3},
                           .outages = outage(0, 2.5, 0.25, true)};
  const auto outcome = setup.run(AsyncLocalSgd({.local_steps = 3}));
  EXPECT_EQ(outcome.log, Log{"step 3 at 6.500 s: kept 3, dropped 0"});
  EXPECT_EQ(outcome.totals.kept, Counts{3});
  EXPECT_EQ(outcome.totals.dropped, Counts{2});
  EXPECT_EQ(outcome.totals.messages, 4);  // the question, and its answer
  EXPECT_EQ(outcome.totals.accounts[0][Activity::discarded], from_seconds(2.25));
  EXPECT_EQ(outcome.totals.accounts[0][Activity::compute], from_seconds(3));
  EXPECT_EQ(outcome.totals.accounts[0][Activity::down], from_seconds(0.25));
  double theta = 1, velocity = 0;
  for (const int turn : {2, 3, 4}) {
    velocity = momentum * velocity + theta - PullObjective::target({Rank{0}, turn, 0}, 0);
    theta -= rate * velocity;
  }
  EXPECT_NEAR(outcome.parameters[0], theta, 1e-5);
  expect_exact_accounts(outcome);
}

TEST(AsyncLocalRounds, AfterALossStalenessCountsFromTheNewModel) {
  SimulatedRun setup{.workers = 2, .network_s = 0.25, .budget = {.steps = 4}, .outages = outage(1, 1.5, 2.75, true)};
  const auto outcome = setup.run(AsyncLocalSgd({.local_steps = 2}));
  // Worker 0: 2.5, 5, 7.5 s. Worker 1 asks at 4.25, is answered at 4.5 with version 1, and comes at 7 s, at version 2.
  expect_times(outcome, {2.5, 5, 7, 7.5});
  EXPECT_EQ(outcome.totals.staleness, (Counts{2, 2}));
  EXPECT_EQ(outcome.totals.kept, (Counts{6, 2}));
  expect_exact_accounts(outcome);
}

TEST(AsyncLocalRounds, WhoseDataAreUsedUpSendsTheStepsThatThereAre) {
  SimulatedRun setup = three_workers(6);
  setup.data_of = {6, 1, std::nullopt};
  const auto outcome = setup.run(AsyncLocalSgd({.local_steps = 4}));
  EXPECT_EQ(outcome.totals.kept[0], 6);  // 4 and 2
  EXPECT_EQ(outcome.totals.kept[1], 1);
  EXPECT_EQ(outcome.totals.kept[2], 12);
  EXPECT_EQ(outcome.published, Step{6});
  expect_exact_accounts(outcome);
}

// After 3 s workers start no step more: worker 0's third ends at 3.25 s, worker 1's at 3.55 s.
TEST(AsyncLocalRounds, ABudgetOfSecondsEndsThem) {
  SimulatedRun setup = three_workers(1);
  setup.budget = {.seconds = 3};
  const auto outcome = setup.run(AsyncLocalSgd({.local_steps = 1000}));
  EXPECT_EQ(outcome.totals.end, Time{from_seconds(3.5)});
  EXPECT_EQ(outcome.totals.kept, (Counts{3, 0, 0}));
  expect_exact_accounts(outcome);
}

TEST(AsyncLocalRounds, MoreStepsThanTheBudgetHasLeftAreSamplesAndNoSteps) {
  const SimulatedRun setup{.workers = 2, .budget = {.steps = 5}};
  const auto outcome = setup.run(AsyncLocalSgd({.local_steps = 8}));
  EXPECT_EQ(outcome.published, Step{5});
  EXPECT_EQ(outcome.samples, 16);
  ASSERT_EQ(outcome.rounds.size(), 2u);
  EXPECT_EQ(outcome.rounds[0].step, Step{4});
  EXPECT_EQ(outcome.rounds[1].step, Step{5});
}

TEST(AsyncLocalSettings, WrongOnesAreFaultsWithTheirPlace) {
  const auto faults = [](const std::string& keys) {
    return read_method("algorithm = \"async-local-sgd\"\n" + keys).faults;
  };
  const std::string plain = "local_steps = 4\nupdate = { name = \"plain\" }\n";
  EXPECT_EQ(faults(plain), "");
  EXPECT_NE(faults("update = { name = \"plain\" }\n"), "");
  EXPECT_NE(faults("local_steps = 0\nupdate = { name = \"plain\" }\n"), "");
  EXPECT_NE(faults("local_steps = 4\n"), "");
  for (const char* const key : {"staleness_exponent = -1", "maximum_staleness = -1", "grace_s = -0.5",
                                "moments = \"average\"", "rate_scaling = \"linear\"", "steps_by_speed = \"yes\"",
                                "minimum_steps = 2", "steps_by_speed = \"up\"\nminimum_steps = 5"})
    EXPECT_NE(faults(plain + key), "") << key;
  for (const char* const update :
       {"name = \"nesterof\"", "name = \"nesterov\", rate = 0.5, momentum = 1", "name = \"nesterov\", momentum = 0.9",
        "name = \"buffered\", size = 0", "name = \"buffered\", size = 2, reduce = \"median\"",
        "name = \"delayed-nesterov\", rate = 1, momentum = 0.9, every = 0",
        "name = \"delayed-nesterov\", rate = 1, momentum = 0.9, every = 4, share = 0.3"})
    EXPECT_NE(faults("local_steps = 4\nupdate = { " + std::string(update) + " }"), "") << update;
  EXPECT_EQ(faults("local_steps = 4\nupdate = { name = \"delayed-nesterov\", rate = 1, momentum = 0.9, every = 4, "
                   "share = 0.25 }"),
            "");
}

}  // namespace
}  // namespace syncopate
