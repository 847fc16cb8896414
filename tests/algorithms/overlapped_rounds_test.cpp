// Averages that are one round late: CoCoD-SGD and Overlap-Local-SGD, and properties of all methods with such averages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "algorithms/local_sgd/local_rounds.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/late_averages.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/overlapped_recursions.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "workers/time/distributions.hpp"

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

// 4 rounds of 2 steps, at a learning rate that falls at every step.
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

// Keys of the methods with late averages; both forms if a method has two.
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

// Rounds have two steps of 1, 1.25 and 2 s. Worker 2's second round begins at 4 s, while the others wait for worker 2.
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
    // Worker 2 waits for nobody, and communicates only at the end.
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

// Worker 1 is down for 1 s in its first round, and from then on 1 s late. The others wait for it only at the end.
TEST(OverlappedRounds, WhoIsLateByLessThanWhatAnAverageLeavesDelaysNobody) {
  SimulatedRun setup{.network_s = 1, .budget = {.steps = 8}};
  setup.outages = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{1}}, .when = ScheduledOutage{from_seconds(0.5), from_seconds(1)}}});
  for (const std::string& keys : methods) {
    SCOPED_TRACE(keys);
    const auto outcome = setup.run(*read(keys, 2));
    EXPECT_EQ(to_seconds(outcome.totals.end), 8 + 1 + 1);  // computing, the outage, and the last average
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
    EXPECT_EQ(outcome.publications.back().samples, 18) << keys;  // the steps of all three workers
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

using testing::AllOf;
using testing::HasSubstr;
using Update = OverlappedOuterOptions::Update;

std::shared_ptr<const OutagePlan> outage(int worker, double at_s, double duration_s, bool loses_state) {
  return std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{worker}},
                                   .when = ScheduledOutage{from_seconds(at_s), from_seconds(duration_s)},
                                   .loses_state = loses_state}});
}

PulledOuter plain(double rate) {
  return [=](double last, double average, double) { return last - rate * (last - average); };
}

struct Method {
  const char* name;
  std::shared_ptr<const Algorithm> algorithm;
  std::function<double(const Pulled&)> model;
};

std::vector<Method> all_methods() {
  const std::shared_ptr<const SyncPeriod> every_2 = make_constant_period(2);
  const OuterOptimizer outer = make_plain_outer(0.8);
  const auto late = [&](Update update) {
    return std::make_shared<OverlappedOuter>(every_2, outer, OverlappedOuterOptions{.update = update}, StatePolicies{});
  };
  return {
      {"CoCoD", std::make_shared<CocodSgd>(every_2, StatePolicies{}), cocod_model},
      {"Overlap",
       std::make_shared<OverlapLocalSgd>(every_2, OverlapLocalOptions{.mixing = 0.6, .momentum = 0.7}, StatePolicies{}),
       [](const Pulled& run) { return overlap_anchor(run, 0.6, 0.7, true); }},
      {"delayed", late(Update::delayed), [](const Pulled& run) { return delayed_model(run, plain(0.8), false); }},
      {"eager", late(Update::eager),
       [](const Pulled& run) { return eager_models(run, std::vector<PulledOuter>(3, plain(0.8)))[0]; }}};
}

// Rounds have two steps of 1 s, averages take 0.5 s: the third round is from 4 to 6 s.
TEST(OverlappedRuns, AWorkerThatLosesItsStateGoesOnFromItsCopyOfTheRoundsBegin) {
  SimulatedRun setup{.budget = {.steps = 8}};
  for (const auto& [name, algorithm, model] : all_methods()) {
    SCOPED_TRACE(name);
    setup.outages = outage(1, 5.5, 0.25, true);  // in the third round's second step: its first is lost, too
    const auto outcome = setup.run(*algorithm);
    const Pulled lost{.lost = {1, 2}};
    EXPECT_NEAR(outcome.parameters[0], model(lost), 1e-5 * std::abs(model(lost)));
    EXPECT_GT(std::abs(model(lost) - model(Pulled{})), 1e-3);
    EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>{0, 1, 0}));
    EXPECT_EQ(outcome.published, Step{8});
    expect_exact_accounts(outcome);
  }
}

TEST(OverlappedRuns, AnOutageThatKeepsTheStateChangesTimeAlone) {
  const SimulatedRun setup{.budget = {.steps = 8}};
  SimulatedRun down = setup;
  down.outages = outage(1, 3.5, 4, false);
  for (const auto& [name, algorithm, model] : all_methods()) {
    const auto outcome = down.run(*algorithm);
    EXPECT_EQ(outcome.parameters, setup.run(*algorithm).parameters) << name;
    EXPECT_EQ(to_seconds(outcome.totals.end), 8 + 4 + 0.5) << name;
    expect_exact_accounts(outcome);
  }
}

// A worker that has left cannot take part in collectives. The run ends with this reason, and no worker waits for ever.
TEST(OverlappedRuns, AWorkerWhoseDataAreUsedUpEndsTheRunWithAReason) {
  SimulatedRun setup{.budget = {.steps = 8}, .data_of = {std::nullopt, Step{5}, std::nullopt}};
  const auto reason = [&](const Algorithm& algorithm) -> std::string {
    try {
      setup.run(algorithm);
    } catch (const std::exception& fault) {
      return fault.what();
    }
    return "";
  };
  for (const auto& [name, algorithm, model] : all_methods())
    EXPECT_THAT(reason(*algorithm), AllOf(HasSubstr("worker 1 left at"), HasSubstr("needs every worker"))) << name;
  for (const int steps : {5, 2, 1}) {  // all workers end together, also in the first round
    setup.data_of = {Step{steps}, Step{steps}, Step{steps}};
    for (const auto& [name, algorithm, model] : all_methods()) {
      EXPECT_EQ(reason(*algorithm), "") << name;
      const auto outcome = setup.run(*algorithm);
      EXPECT_EQ(outcome.published, Step{steps}) << name;
      EXPECT_EQ(sum(outcome.totals.kept), 3 * steps) << name;
    }
  }
}

// With any length and kind of budget, all workers take part in the same averages.
TEST(OverlappedRuns, EndTogetherUnderEveryBudget) {
  std::vector<Budget> budgets;
  for (const double seconds : {0.5, 2.0, 3.0, 7.2, 20.0}) budgets.push_back({.seconds = seconds});
  for (const std::int64_t samples : {1, 5, 6, 7, 40}) budgets.push_back({.samples = samples});
  for (const std::int64_t averages : {1, 2, 5}) budgets.push_back({.bytes = Bytes{averages * 2 * 2 * 16}});
  budgets.push_back({.steps = 1});
  budgets.push_back({.steps = 7, .seconds = 6.0});
  budgets.push_back({.steps = 4, .seconds = 4.5});  // worker 0 has taken all steps when the others' time is over
  for (std::size_t b = 0; b < budgets.size(); ++b)
    for (const double network_s : {0.5, 5.0})
      for (const auto& [name, algorithm, model] : all_methods()) {
        const bool is_last = b + 1 == budgets.size();
        SimulatedRun setup{.delays = {std::make_shared<DelayOfWorker>(is_last ? std::vector{0.0, 0.9, 0.9}
                                                                              : std::vector{0.0, 0.4, 1.3})}};
        SCOPED_TRACE(testing::Message() << name << ", budget " << b << ", network " << network_s);
        setup.budget = budgets[b];
        setup.network_s = network_s;
        const auto outcome = setup.run(*algorithm);
        expect_exact_accounts(outcome);
        EXPECT_GT(sum(outcome.totals.kept), 0);
        EXPECT_EQ(outcome.publications.back().time, outcome.totals.end);
        EXPECT_EQ(outcome.publications.back().samples, sum(outcome.totals.kept));
        EXPECT_EQ(outcome.totals.bytes, Bytes{outcome.totals.collectives * 2 * 2 * 16});
        if (setup.budget.bytes) {
          EXPECT_GE(outcome.totals.bytes, *setup.budget.bytes);
        }
        if (setup.budget.samples) {
          EXPECT_GE(sum(outcome.totals.kept), *setup.budget.samples);
        }
      }
}

// The rule's synchronous steps come first, and give all workers the same model.
TEST(OverlappedRuns, BeginAfterSynchronousStepsWhereTheRuleSaysSo) {
  const SimulatedRun setup{.budget = {.steps = 7}};
  for (const std::string keys : {"\"cocod-sgd\"", "\"overlap-local-sgd\"\nmixing = 0.5", "\"co2\"",
                                 "\"overlapped-diloco\"\nouter = { name = \"plain\" }"}) {
    SCOPED_TRACE(keys);
    const auto reading =
        read_method("algorithm = " + keys + "\nperiod = { rule = \"post-local\", switch_step = 3, steps = 2 }");
    ASSERT_EQ(reading.faults, "");
    EXPECT_EQ(setup.run(*reading.algorithm).log,
              (std::vector<std::string>{"step 1 at 1.500 s: kept 3, dropped 0", "step 2 at 3.000 s: kept 3, dropped 0",
                                        "step 3 at 4.500 s: kept 3, dropped 0", "step 5 at 7.000 s: kept 6, dropped 0",
                                        "step 7 at 9.000 s: kept 6, dropped 0"}));
  }
}

// Predicted times of averages one round late, compared with closed forms and whole simulations. A round's computing
// hides an average that takes less time.

const std::vector<std::string> late_methods = {
    "\"cocod-sgd\"", "\"overlap-local-sgd\"\nmixing = 0.5", "\"co2\"",
    "\"overlapped-diloco\"\nouter = { name = \"diloco\", rate = 0.7, momentum = 0.5 }",
    "\"overlapped-diloco\"\nupdate = \"delayed\"\nouter = { name = \"plain\" }"};

constexpr int period = 8;
constexpr double step_s = 2;  // two micro-batches
PredictedRun setting(double average_s, std::vector<std::shared_ptr<const DelayProcess>> delays) {
  return {.workers = 6, .micro_batches = 2, .delays = std::move(delays), .steps = 400, .network_s = average_s};
}

TEST(OverlappedTimes, AnAverageOfFourFifthsOfARoundIsHidden) {
  for (const double share : {0.3, 0.8, 1.0, 1.7}) {
    PredictedRun run = setting(share * period * step_s, {});
    run.steps = 4000;  // the first round waits for nothing, and the last average is waited for
    const double expected_s = step_s * std::max(1.0, share);
    for (const std::string& keys : late_methods)
      EXPECT_NEAR(run.simulate(*read(keys, period)).step_s, expected_s, 0.01 * expected_s) << keys << ", " << share;
    const OuterLocalSgd waits(make_constant_period(period), make_plain_outer(1), {});
    EXPECT_NEAR(run.simulate(waits).step_s, step_s * (1 + share), 1e-9);
  }
}

// The run has 50 rounds. If an average is shorter than a round, the run takes the computing of 50 rounds and the last
// average. If it is longer, the run takes the computing of the first round and 50 averages.
TEST(OverlappedTimes, WithoutSpreadHaveAClosedForm) {
  for (const double share : {0.3, 0.8, 1.0, 1.7}) {
    const PredictedRun run = setting(share * period * step_s, {});
    const double round_s = period * step_s, average_s = share * round_s;
    const double total_s = share > 1 ? round_s + 50 * average_s : 50 * round_s + average_s;
    const double communication_s = share > 1 ? 49 * (average_s - round_s) + average_s : average_s;
    for (const std::string& keys : late_methods) {
      const auto simulated = run.simulate(*read(keys, period));
      EXPECT_NEAR(simulated.step_s, total_s / 400, 1e-9);
      EXPECT_NEAR(simulated.communication_s, communication_s / 400, 1e-9);
    }
  }
}

// The prediction samples all 400 steps of the run, so the recursion here uses the same step times.
TEST(OverlappedTimes, OfRandomStepsAreThoseOfARecursion) {
  constexpr std::size_t steps = 400, length = 7;  // the last round is shorter
  for (const auto& delay : {noise, exponential_delay(1), pareto_delay(1.5, 0.5)})
    for (const double average_s : {1.0, 30.0, 45.0}) {
      PredictedRun run = setting(average_s, {delay});
      run.factors = {1, 1.2, 1, 1.1, 1, 1};
      std::vector<LateAverage> averages;
      for (std::size_t end = length; end < steps + length; end += length)
        averages.push_back({std::min(end, steps), std::min(end + length, steps), average_s});
      const double end_s =
          run.with_input([&](const PredictionInput& input) { return end_with_late_averages(input.times, averages); });
      for (const std::string& keys : {late_methods[0], late_methods[3]})
        EXPECT_NEAR(run.simulate(*read(keys, length)).step_s, end_s / steps, 1e-6);
    }
}

// On average a round takes at least the slowest worker's computing, and at least the average of models. It takes at
// most as long as if all waited for the slowest worker and then for the average.
TEST(OverlappedTimes, LieBetweenTheTwoBounds) {
  for (const double average_s : {5.0, 20.0, 30.0}) {
    PredictedRun run = setting(average_s, {exponential_delay(1)});
    run.factors = {1, 1, 1, 1, 1, 1.5};
    const double late_s = run.simulate(*read(late_methods[0], period)).step_s;
    run.network_s = 0;
    const double waiting_s = run.simulate(LocalSgd(make_constant_period(period), {})).step_s;
    const double slowest_s = 2 * (1.5 + 1);  // two micro-batches of 1.5 s and a delay of 1 s on average
    EXPECT_GE(late_s, 0.97 * std::max(slowest_s, average_s / period)) << average_s;
    EXPECT_LE(late_s, waiting_s + average_s / period) << average_s;
  }
}

}  // namespace
}  // namespace syncopate
