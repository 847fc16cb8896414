// Runs with averages one round late that do not go their usual way: workers that lose their state or leave, budgets
// other than of steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "algorithms/local_sgd/cocod_sgd.hpp"
#include "algorithms/local_sgd/overlap_local_sgd.hpp"
#include "algorithms/local_sgd/overlapped_outer.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/overlapped_recursions.hpp"

namespace syncopate {
namespace {

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

std::vector<Method> methods() {
  const std::shared_ptr<const SyncPeriod> every_2 = make_constant_period(2);
  const std::shared_ptr<const OuterOptimizer> outer = make_plain_outer(0.8);
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

// Rounds of two steps of 1 s, averages of 0.5 s: the third round is from 4 to 6 s.
TEST(OverlappedRuns, AWorkerThatLosesItsStateGoesOnFromItsCopyOfTheRoundsBegin) {
  SimulatedRun setup{.budget = {.steps = 8}};
  for (const auto& [name, algorithm, model] : methods()) {
    SCOPED_TRACE(name);
    setup.outages = outage(1, 5.5, 0.25, true);  // in the second step: the first is lost, too, and not taken again
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
  for (const auto& [name, algorithm, model] : methods()) {
    const auto outcome = down.run(*algorithm);
    EXPECT_EQ(outcome.parameters, setup.run(*algorithm).parameters) << name;
    EXPECT_EQ(to_seconds(outcome.totals.end), 8 + 4 + 0.5) << name;
    expect_exact_accounts(outcome);
  }
}

// Nobody takes part in collectives any more who has left: it is said, and nobody waits for ever.
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
  for (const auto& [name, algorithm, model] : methods())
    EXPECT_THAT(reason(*algorithm), AllOf(HasSubstr("worker 1 left at"), HasSubstr("needs every worker"))) << name;
  for (const int steps : {5, 2, 1}) {  // all alike: they end together, in the first round too
    setup.data_of = {Step{steps}, Step{steps}, Step{steps}};
    for (const auto& [name, algorithm, model] : methods()) {
      EXPECT_EQ(reason(*algorithm), "") << name;
      const auto outcome = setup.run(*algorithm);
      EXPECT_EQ(outcome.published, Step{steps}) << name;
      EXPECT_EQ(sum(outcome.totals.kept), 3 * steps) << name;
    }
  }
}

// However short a budget is, and whatever it counts, all workers take part in the same averages.
TEST(OverlappedRuns, EndTogetherUnderEveryBudget) {
  std::vector<Budget> budgets;
  for (const double seconds : {0.5, 2.0, 3.0, 7.2, 20.0}) budgets.push_back({.seconds = seconds});
  for (const std::int64_t samples : {1, 5, 6, 7, 40}) budgets.push_back({.samples = samples});
  for (const std::int64_t averages : {1, 2, 5}) budgets.push_back({.bytes = Bytes{averages * 2 * 2 * 16}});
  budgets.push_back({.steps = 1});
  budgets.push_back({.steps = 7, .seconds = 6.0});
  budgets.push_back({.steps = 4, .seconds = 4.5});  // which worker 0 has taken when the others' time is over
  for (std::size_t b = 0; b < budgets.size(); ++b)
    for (const double network_s : {0.5, 5.0})
      for (const auto& [name, algorithm, model] : methods()) {
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

// Synchronous steps come first, and leave one model to all.
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

}  // namespace
}  // namespace syncopate
