// How rounds and runs of EDiT end where workers are down or lose their state, data are used up, or a budget is short.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/algorithms/edit_options.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/base/process.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::shared_ptr<const OutagePlan> outage(double at_s, double duration_s, bool loses_state) {
  return std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{1}},
                                   .when = ScheduledOutage{from_seconds(at_s), from_seconds(duration_s)},
                                   .loses_state = loses_state}});
}

// Rounds of 4 s and 1 s of communication; the second begins at 5 s. The loss takes two steps along, and the rest of the
// round is weighed as any: in double precision, of one element and two workers.
TEST(EditEnds, AWorkerThatLosesItsStateGoesOnFromTheRoundsBegin) {
  SimulatedRun setup{.workers = 2, .rate = 0.1, .budget = {.steps = 8}, .outages = outage(7.5, 0.25, true)};
  setup.objective = std::make_shared<PullObjective>(1, 1);
  EditOptions options = by_steps(4, {.temperature = 3});
  options.outer = make_plain_outer(1);
  double model = 1;
  for (int round = 0; round < 2; ++round) {
    double differences[2] = {}, weights[2] = {};
    for (int k = 0; k < 2; ++k) {
      double theta = model;
      for (int step = 4 * round; step < 4 * round + 4; ++step) {
        if (k == 1 && step == 6) theta = model;
        theta -= 0.1 * (theta - PullObjective::target({Rank{k}, step, 0}, 0));
      }
      differences[k] = theta - model;
      weights[k] = std::exp(-std::abs(differences[k]) / 3);
    }
    model += (weights[0] * differences[0] + weights[1] * differences[1]) / (weights[0] + weights[1]);
  }
  const auto outcome = setup.run(Edit(options));
  EXPECT_NEAR(outcome.parameters[0], model, 1e-5 * std::abs(model));
  EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>{0, 2}));
  expect_exact_accounts(outcome);
}

TEST(EditEnds, OutagesHoldUpARoundAndNothingElse) {
  for (const bool loses_state : {false, true})
    for (const EditOptions& options : {by_steps(4), by_time(4)}) {
      SimulatedRun setup{.budget = {.steps = 12}, .outages = outage(6.5, 3, loses_state)};
      const auto outcome = setup.run(Edit(options));
      EXPECT_EQ(outcome.published, Step{12});
      EXPECT_EQ(sum(outcome.totals.kept) + sum(outcome.totals.dropped), 3 * 12);
      expect_exact_accounts(outcome);
    }
  // Down, and back with what it had: by steps the round takes 3 s more, and nothing else differs.
  const SimulatedRun setup{.budget = {.steps = 12}};
  SimulatedRun down = setup;
  down.outages = outage(6.5, 3, false);
  EXPECT_EQ(down.run(Edit(by_steps(4))).parameters, setup.run(Edit(by_steps(4))).parameters);
  EXPECT_EQ(to_seconds(down.run(Edit(by_steps(4))).totals.end), 3 * (4 + 1) + 3);
  // By time the others end their 4 steps, and wait for its second, 4.5 s after the round's begin.
  EXPECT_EQ(down.run(Edit(by_time(4))).log[1], "step 8 at 11.000 s: kept 10, dropped 2");
}

TEST(EditEnds, AWorkerWhoseDataAreUsedUpEndsTheRunWithAReason) {
  for (const EditOptions& options : {by_steps(4), by_time(4)}) {
    SimulatedRun setup{.budget = {.steps = 12}, .data_of = {std::nullopt, Step{5}, std::nullopt}};
    try {
      setup.run(Edit(options));
      ADD_FAILURE() << "must end";
    } catch (const RunFailure& failure) {
      EXPECT_THAT(failure.what(), AllOf(HasSubstr("worker 1 left at"), HasSubstr("needs every worker")));
    }
    setup.data_of = {Step{5}, Step{5}, Step{5}};  // together: the last round is of one step
    const auto outcome = setup.run(Edit(options));
    EXPECT_EQ(outcome.published, Step{5});
    EXPECT_EQ(sum(outcome.totals.kept), 3 * 5);
  }
}

// However short a budget is, and whatever it counts, all workers meet, and a round that is put off ends with it.
TEST(EditEnds, EndsTogetherUnderEveryBudget) {
  std::vector<Budget> budgets;
  for (const double seconds : {0.5, 2.0, 5.2, 7.2, 20.0}) budgets.push_back({.seconds = seconds});
  for (const std::int64_t samples : {1, 5, 9, 10, 40}) budgets.push_back({.samples = samples});
  for (const std::int64_t bytes : {1, 200, 1000}) budgets.push_back({.bytes = Bytes{bytes}});
  budgets.push_back({.steps = 1});
  budgets.push_back({.steps = 7, .seconds = 6.0});
  for (const Budget& budget : budgets)
    for (const std::int64_t minimum_steps : {1, 30})
      for (EditOptions options : {by_steps(4), by_time(3.5)}) {
        options.timed.minimum_steps = minimum_steps;
        SimulatedRun setup = uneven;
        setup.budget = budget;
        const auto outcome = setup.run(Edit(options));
        expect_exact_accounts(outcome);
        EXPECT_GT(sum(outcome.totals.kept), 0);
        EXPECT_EQ(outcome.publications.back().time, outcome.totals.end);
        EXPECT_EQ(outcome.publications.back().samples, sum(outcome.totals.kept));
      }
}

}  // namespace
}  // namespace syncopate
