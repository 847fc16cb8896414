// Averages that are one round late: CoCoD-SGD and Overlap-Local-SGD, and what all methods of this kind have in common.
#include "algorithms/local_sgd/overlapped_rounds.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "algorithms/local_sgd/cocod_sgd.hpp"
#include "algorithms/local_sgd/overlap_local_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/overlapped_recursions.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;
using Units = OverlapLocalOptions::MomentumUnits;

CocodSgd cocod(int period) { return {make_constant_period(period), {}}; }
OverlapLocalSgd overlap(int period, const OverlapLocalOptions& options) {
  return {make_constant_period(period), options, {}};
}

void expect_near(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-6 * std::abs(expected[i])) << i;
}

// 4 rounds of 2 steps under a rate that falls at every step.
SimulatedRun falling(Pulled& run) {
  const int steps = run.rounds * Pulled::period;
  SimulatedRun setup{.workers = run.workers, .budget = {.steps = steps}};
  setup.learning_rate = std::make_shared<LearningRate>(
      LearningRate::Options{.shape = LearningRate::Shape::linear, .peak = 0.2, .total_steps = steps});
  run.rates.clear();
  for (int s = 0; s < steps; ++s) run.rates.push_back(0.2 * (steps - s) / steps);
  return setup;
}

// Every worker has worker 0's samples.
struct AlikeObjective : PullObjective {
  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override {
    std::vector<MicroBatch> of_first(micro_batches.begin(), micro_batches.end());
    for (MicroBatch& micro_batch : of_first) micro_batch.worker = Rank{0};
    return PullObjective::gradient(parameters, buffers, of_first);
  }
};

TEST(CocodSgd, OfOneWorkerEqualsSerialSgd) {
  const SimulatedRun setup{.workers = 1, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 11}};
  expect_near(setup.run(cocod(3)).parameters, setup.run(LocalSgd(make_constant_period(1), {})).parameters);
}

TEST(CocodSgd, OfWorkersThatComputeTheSameEqualsSerialSgd) {
  SimulatedRun setup{.workers = 4, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 11}};
  setup.objective = std::make_shared<AlikeObjective>();
  const auto four = setup.run(cocod(3));
  setup.workers = 1;
  expect_near(four.parameters, setup.run(LocalSgd(make_constant_period(1), {})).parameters);
}

TEST(CocodSgd, FollowsTheRecursion) {
  Pulled run;
  const auto outcome = falling(run).run(cocod(2));
  for (run.coordinate = 0; run.coordinate < 4; ++run.coordinate)
    EXPECT_NEAR(outcome.parameters[run.coordinate], cocod_model(run), 1e-5);
}

TEST(OverlapLocalSgd, WithoutMixingIsTheAverageOfWorkersThatTrainAlone) {
  const SimulatedRun setup{.workers = 4, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 12}};
  expect_near(setup.run(overlap(3, {.mixing = 0})).parameters,
              setup.run(LocalSgd(make_constant_period(12), {})).parameters);
}

TEST(OverlapLocalSgd, MixedWhollyMovesNothing) {
  const SimulatedRun setup{.workers = 4, .rate = 0.05, .budget = {.steps = 12}};
  EXPECT_EQ(setup.run(overlap(3, {.mixing = 1, .momentum = 0.7})).parameters, std::vector<float>(4, 1.0f));
}

TEST(OverlapLocalSgd, FollowsTheRecursion) {
  for (const auto units : {Units::rate, Units::model}) {
    Pulled run;
    const auto outcome = falling(run).run(overlap(2, {.mixing = 0.6, .momentum = 0.7, .momentum_units = units}));
    for (run.coordinate = 0; run.coordinate < 4; ++run.coordinate) {
      EXPECT_NEAR(outcome.parameters[run.coordinate], overlap_anchor(run, 0.6, 0.7, units == Units::rate), 1e-5);
      EXPECT_GT(std::abs(overlap_anchor(run, 0.6, 0.7, true) - overlap_anchor(run, 0.6, 0.7, false)), 1e-3);
    }
  }
}

TEST(OverlapLocalSgd, AtRateZeroNothingMovesWhateverTheMomentum) {
  const SimulatedRun setup{.workers = 4, .rate = 0, .budget = {.steps = 6}};
  EXPECT_EQ(setup.run(overlap(2, {.mixing = 0.5, .momentum = 0.7})).parameters, std::vector<float>(4, 1.0f));
}

// What a method's file says, each in both forms where it has two.
const std::vector<std::string> methods = {
    "\"cocod-sgd\"",
    "\"overlap-local-sgd\"\nmixing = 0.5\nmomentum = 0.5",
    "\"co2\"",
    "\"co2\"\nanchor = \"round-start\"",
    "\"overlapped-diloco\"\nouter = { name = \"diloco\", rate = 0.7, momentum = 0.5 }",
    "\"overlapped-diloco\"\nupdate = \"delayed\"\nouter = { name = \"slowmo\", momentum = 0.5 }"};

std::unique_ptr<Algorithm> read(const std::string& keys, int period) {
  auto reading =
      read_method("algorithm = " + keys + "\nperiod = { rule = \"constant\", steps = " + std::to_string(period) + " }");
  EXPECT_EQ(reading.faults, "") << keys;
  return std::move(reading.algorithm);
}

// Rounds of two steps of 1, 1.25 and 2 s; worker 2's second round begins at 4 s, when the others still wait for it.
TEST(OverlappedRounds, AnAverageShorterThanARoundTakesNoTimeButTheLast) {
  const SimulatedRun setup{.budget = {.steps = 6},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  for (const std::string& keys : methods) {
    SCOPED_TRACE(keys);
    const auto outcome = setup.run(*read(keys, 2));
    EXPECT_EQ(outcome.log,
              (std::vector<std::string>{"step 2 at 4.500 s: kept 6, dropped 0", "step 4 at 8.500 s: kept 6, dropped 0",
                                        "step 6 at 12.500 s: kept 6, dropped 0"}));
    EXPECT_EQ(to_seconds(outcome.totals.end), 12.5);
    EXPECT_EQ(outcome.totals.bytes, Bytes{3 * 2 * 2 * 16});
    EXPECT_EQ(outcome.published, Step{6});
    // Worker 2 waits for nobody, and communicates at the end alone.
    EXPECT_EQ(to_seconds(outcome.totals.accounts[2][Activity::wait]), 0);
    EXPECT_EQ(to_seconds(outcome.totals.accounts[2][Activity::communicate]), 0.5);
    expect_exact_accounts(outcome);
  }
}

TEST(OverlappedRounds, AnAverageLongerThanARoundSetsThePace) {
  const SimulatedRun setup{.network_s = 5, .budget = {.steps = 6}};
  for (const std::string& keys : methods)
    EXPECT_EQ(setup.run(*read(keys, 2)).log,
              (std::vector<std::string>{"step 2 at 7.000 s: kept 6, dropped 0", "step 4 at 12.000 s: kept 6, dropped 0",
                                        "step 6 at 17.000 s: kept 6, dropped 0"}))
        << keys;
}

// Worker 1 is down for 1 s in its first round, and from then on 1 s later than the others: they wait for it at the end
// alone.
TEST(OverlappedRounds, WhoIsLateByLessThanWhatAnAverageLeavesDelaysNobody) {
  SimulatedRun setup{.network_s = 1, .budget = {.steps = 8}};
  setup.outages = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{1}}, .when = ScheduledOutage{from_seconds(0.5), from_seconds(1)}}});
  for (const std::string& keys : methods) {
    SCOPED_TRACE(keys);
    const auto outcome = setup.run(*read(keys, 2));
    EXPECT_EQ(to_seconds(outcome.totals.end), 8 + 1 + 1);  // computing, the outage, the last average
    EXPECT_EQ(to_seconds(outcome.totals.accounts[0][Activity::wait]), 1);
    EXPECT_EQ(to_seconds(outcome.totals.accounts[1][Activity::communicate]), 1);
    expect_exact_accounts(outcome);
  }
}

TEST(OverlappedRounds, ARunOfOneRoundIsThatOfTheMethodThatWaits) {
  const SimulatedRun setup{.workers = 4, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 3}};
  const auto local = setup.run(LocalSgd(make_constant_period(3), {}));
  for (const std::string keys : {"\"cocod-sgd\"", "\"overlap-local-sgd\"\nmixing = 0", "\"co2\"\nmomentum = 0",
                                 "\"overlapped-diloco\"\nouter = { name = \"plain\" }"}) {
    SCOPED_TRACE(keys);
    const auto outcome = setup.run(*read(keys, 3));
    expect_near(outcome.parameters, local.parameters);
    EXPECT_EQ(outcome.log, local.log);
  }
}

TEST(OverlappedRounds, PublishAfterEachRoundAndTheLastAverage) {
  const SimulatedRun setup{.budget = {.steps = 6}};
  for (const std::string& keys : methods) {
    const auto outcome = setup.run(*read(keys, 2));
    ASSERT_FALSE(outcome.publications.empty()) << keys;
    EXPECT_EQ(outcome.publications.back().step, Step{6}) << keys;
    EXPECT_EQ(outcome.publications.back().samples, 18) << keys;  // of all three workers' steps
  }
}

TEST(OverlappedRoundsSettings, FaultsNameTheKey) {
  const auto faults = [](const std::string& keys) {
    return read_method("algorithm = " + keys + "\nperiod = { rule = \"constant\", steps = 2 }").faults;
  };
  EXPECT_THAT(faults("\"overlap-local-sgd\""), HasSubstr("mixing is missing"));
  EXPECT_THAT(faults("\"overlap-local-sgd\"\nmixing = 1.5"), HasSubstr("mixing = 1.5"));
  EXPECT_THAT(faults("\"overlap-local-sgd\"\nmixing = -0.1"), HasSubstr("mixing = -0.1"));
  EXPECT_THAT(faults("\"overlap-local-sgd\"\nmixing = 0.5\nmomentum = 1"), HasSubstr("momentum = 1"));
  EXPECT_THAT(faults("\"overlap-local-sgd\"\nmixing = 0.5\nmomentum_units = \"steps\""),
              HasSubstr("momentum_units = \"steps\""));
  EXPECT_THAT(faults("\"co2\"\nrate = 0"), HasSubstr("rate = 0"));
  EXPECT_THAT(faults("\"co2\"\ngap = 0"), HasSubstr("gap = 0"));
  EXPECT_THAT(faults("\"co2\"\ngap = inf"), HasSubstr("gap = inf"));
  EXPECT_THAT(faults("\"co2\"\nanchor = \"start\""), HasSubstr("anchor = \"start\""));
  EXPECT_THAT(faults("\"overlapped-diloco\""), HasSubstr("outer"));
  EXPECT_THAT(faults("\"overlapped-diloco\"\nupdate = \"late\"\nouter = { name = \"plain\" }"),
              HasSubstr("update = \"late\""));
  EXPECT_THAT(faults("\"cocod-sgd\"\nmoments = \"average\""), HasSubstr("moments"));
}

}  // namespace
}  // namespace syncopate
