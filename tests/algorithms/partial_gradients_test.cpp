// DropCompute with preempt = "layer": what is left of a micro-batch that the deadline cuts, in closed form.
// Micro-batches of a second, half of it forward; the backward pass comes through the tensors of LayeredPullObjective
// after 1, 5, 6 and 8 sixteenths of a second.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/synchronous/drop_compute.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/layered_pull_objective.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {
namespace {

using Normalisation = DropComputeOptions::Normalisation;

DropCompute by_layers(double threshold_s, Normalisation normalisation = Normalisation::constant) {
  return DropCompute({.threshold = make_fixed_threshold(from_seconds(threshold_s)),
                      .preempt = Preempt::layer,
                      .forward_share = 0.5,
                      .normalisation = normalisation});
}

struct Part {
  MicroBatch micro_batch;
  double backward_share;  // 1: whole
};

// Where one step of the rate goes from ones.
std::vector<double> one_step(double rate, const std::vector<Part>& parts, const std::function<double(int)>& divisor) {
  std::vector<double> parameters;
  for (std::size_t i = 0; i < 8; ++i) {
    double sum = 0;
    int count = 0;
    for (const Part& part : parts) {
      if (LayeredPullObjective::exists_after(i) > part.backward_share) continue;
      sum += 1.0 - PullObjective::target(part.micro_batch, i);
      ++count;
    }
    parameters.push_back(1 - rate * sum / divisor(count));
  }
  return parameters;
}

SimulatedRun layered(int workers, int micro_batches, std::vector<double> delays_s = {}) {
  SimulatedRun setup{.workers = workers, .micro_batches = micro_batches, .rate = 0.25, .budget = {.steps = 1}};
  setup.objective = std::make_shared<LayeredPullObjective>();
  if (!delays_s.empty()) setup.delays = {std::make_shared<DelayOfWorker>(std::move(delays_s))};
  return setup;
}

void expect_parameters(const std::vector<float>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << "element " << i;
}

TEST(PartialGradients, TheTensorsCountWhoseBackwardPartEndsAtTheDeadlineOrBefore) {
  struct Case {
    double threshold_s;
    double backward_share;
    int kept;
  };
  constexpr double ns = 1e-9;
  const std::vector<Case> cases = {
      {ns, 0, 0},
      {0.3, 0, 0},  // in the forward pass
      {0.5, 0, 0},
      {0.5625 - ns, 0, 0},  // in the backward pass of the last tensor
      {0.5625, 0.125, 0},
      {0.7, 0.125, 0},  // it has ended
      {0.8125 - ns, 0.5, 0},
      {0.8125, 0.625, 0},  // the last but one
      {0.875 - ns, 0.7, 0},
      {0.875, 0.75, 0},  // and the one before
      {1 - ns, 0.999, 0},
      {1, 1, 1},  // and the whole
      {1 + ns, 1, 1},
      {HUGE_VAL, 1, 1},
  };
  for (const Case& tried : cases) {
    SCOPED_TRACE(testing::Message() << tried.threshold_s << " s");
    const auto outcome = layered(1, 1).run(by_layers(tried.threshold_s));
    expect_parameters(outcome.parameters,
                      one_step(0.25, {{{Rank{0}, 0, 0}, tried.backward_share}}, [](int) { return 1; }));
    ASSERT_EQ(outcome.rounds.size(), 1u);
    EXPECT_EQ(outcome.rounds.front().kept, tried.kept);
    EXPECT_EQ(outcome.rounds.front().dropped, 1 - tried.kept);
    EXPECT_EQ(outcome.totals.end, start_time + from_seconds(std::min(tried.threshold_s, 1.0) + 0.5));
    expect_exact_accounts(outcome);
  }
}

// By 3.25 s: worker 0, of 1 s each, has three micro-batches; worker 1, of 1.25 s, two, and of the third 0.75 s, half a
// second of them forward and then 0.2 of 0.625 s; worker 2, of 2 s, has one, and of the second 1.25 s, a quarter of the
// second that its backward pass takes; worker 3, of 3 s, has one, and a quarter of a second forward.
const std::vector<double> delays_s = {0, 0.25, 1, 2};
const std::vector<Part> parts = {{{Rank{0}, 0, 0}, 1}, {{Rank{0}, 0, 1}, 1},    {{Rank{0}, 0, 2}, 1},
                                 {{Rank{1}, 0, 0}, 1}, {{Rank{1}, 0, 1}, 1},    {{Rank{1}, 0, 2}, 0.2},
                                 {{Rank{2}, 0, 0}, 1}, {{Rank{2}, 0, 1}, 0.25}, {{Rank{3}, 0, 0}, 1}};

TEST(PartialGradients, AreDividedByAllMicroBatchesOrEachTensorByThoseThatHaveReachedIt) {
  const SimulatedRun setup = layered(4, 3, delays_s);
  const auto constant = setup.run(by_layers(3.25));
  expect_parameters(constant.parameters, one_step(0.25, parts, [](int) { return 12; }));
  const auto computed = setup.run(by_layers(3.25, Normalisation::computed));
  expect_parameters(computed.parameters, one_step(0.25, parts, [](int count) { return count; }));
  for (const auto& outcome : {constant, computed}) {
    EXPECT_EQ(outcome.log, std::vector<std::string>{"step 1 at 3.750 s: kept 7, dropped 5"});
    EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>{0, 1, 2, 2}));
    EXPECT_EQ(outcome.totals.accounts[1][Activity::compute], from_seconds(2.5));
    EXPECT_EQ(outcome.totals.accounts[1][Activity::discarded], from_seconds(0.75));
    expect_exact_accounts(outcome);
  }
  // One number per tensor goes along, over four workers.
  EXPECT_EQ(computed.totals.bytes - constant.totals.bytes, Bytes{2 * (4 - 1) * 4 * 4});
}

TEST(PartialGradients, TensorsThatNobodyHasReachedStayWhereTheyAre) {
  for (const Normalisation normalisation : {Normalisation::constant, Normalisation::computed}) {
    const auto outcome = layered(2, 2).run(by_layers(0.6, normalisation));
    const double divisor = normalisation == Normalisation::constant ? 4 : 2;
    const auto expected =
        one_step(0.25, {{{Rank{0}, 0, 0}, 0.2}, {{Rank{1}, 0, 0}, 0.2}}, [&](int) { return divisor; });
    expect_parameters(outcome.parameters, expected);
    EXPECT_EQ(outcome.parameters[0], 1.0f);
    EXPECT_NE(outcome.parameters[7], 1.0f);
  }
}

// What is whole is evaluated together, and so is what has been cut at the same tensor.
TEST(PartialGradients, CostOneEvaluationPerCut) {
  const SimulatedRun setup = layered(4, 3, delays_s);
  const auto objective = std::make_shared<LayeredPullObjective>();
  SimulatedRun counted = setup;
  counted.objective = objective;
  counted.run(by_layers(3.25));
  EXPECT_EQ(objective->evaluations, 9);
  EXPECT_EQ(objective->calls, 2);  // both cuts leave the last tensor alone
}

TEST(PartialGradients, TakeAsLongWithoutAModel) {
  for (const bool in_lockstep : {false, true}) {
    SimulatedRun setup = layered(4, 3, delays_s);
    setup.budget.steps = 5;
    const auto expected = setup.run(by_layers(3.25));
    setup.objective = nullptr;
    setup.in_lockstep = in_lockstep;
    const auto found = setup.run(by_layers(3.25));
    EXPECT_EQ(found.log, expected.log);
    EXPECT_EQ(found.totals.kept, expected.totals.kept);
    for (std::size_t worker = 0; worker < 4; ++worker)
      EXPECT_EQ(found.totals.accounts[worker][Activity::discarded],
                expected.totals.accounts[worker][Activity::discarded]);
  }
}

// The outage begins when 0.85 s have been worked, the deadline passes in it, and the worker is up at 1.35 s.
TEST(PartialGradients, BeforeAnOutageCountUnlessItTakesTheState) {
  for (const bool loses_state : {false, true}) {
    SimulatedRun setup = layered(1, 1);
    setup.outages = std::make_shared<OutagePlan>(
        1, std::vector<OutageEntry>{
               {.when = ScheduledOutage{from_seconds(0.85), from_seconds(0.5)}, .loses_state = loses_state}});
    const auto outcome = setup.run(by_layers(1.2));
    const double share = loses_state ? 0 : 0.7;
    expect_parameters(outcome.parameters, one_step(0.25, {{{Rank{0}, 0, 0}, share}}, [](int) { return 1; }));
    EXPECT_EQ(outcome.totals.end, start_time + from_seconds(1.85));
    EXPECT_EQ(outcome.totals.accounts[0][Activity::discarded], from_seconds(0.85));
    expect_exact_accounts(outcome);
  }
}

// The first micro-batch ends at 1.25 s, the second has worked for 0.6 s at 2.1 s.
TEST(PartialGradients, GoOnAfterAnOutageThatKeepsTheState) {
  SimulatedRun setup = layered(1, 2);
  setup.outages = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.when = ScheduledOutage{from_seconds(0.8), from_seconds(0.25)}},
                                  {.when = ScheduledOutage{from_seconds(1.6), from_seconds(0.25)}}});
  const auto outcome = setup.run(by_layers(2.1));
  expect_parameters(outcome.parameters,
                    one_step(0.25, {{{Rank{0}, 0, 0}, 1}, {{Rank{0}, 0, 1}, 0.2}}, [](int) { return 2; }));
  EXPECT_EQ(outcome.rounds.front().kept, 1);
}

// As with preempt = "discard", but for the last layers: several steps, with momentum, on workers in consensus.
TEST(PartialGradients, MakeOneStepForAllWorkers) {
  for (const Normalisation normalisation : {Normalisation::constant, Normalisation::computed}) {
    SimulatedRun setup = layered(4, 3, delays_s);
    setup.momentum = 0.9;
    setup.budget.steps = 6;
    const auto outcome = setup.run(by_layers(3.25, normalisation));
    std::vector<double> parameters(8, 1), moments(8, 0);
    for (int step = 0; step < 6; ++step)
      for (std::size_t i = 0; i < 8; ++i) {
        double sum = 0;
        int count = 0;
        for (const Part& part : parts) {
          if (LayeredPullObjective::exists_after(i) > part.backward_share) continue;
          MicroBatch micro_batch = part.micro_batch;
          micro_batch.step = Step{step};
          sum += parameters[i] - PullObjective::target(micro_batch, i);
          ++count;
        }
        moments[i] = 0.9 * moments[i] + sum / (normalisation == Normalisation::constant ? 12 : count);
        parameters[i] -= 0.25 * moments[i];
      }
    for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(outcome.parameters[i], parameters[i], 1e-3) << i;
  }
}

std::string faults_of(const std::string& keys) {
  SettingsDocument document(parse_toml("threshold_s = 0.1\npreempt = \"layer\"\n" + keys, "test.toml"));
  Settings settings = document.root();
  make_drop_compute(
      settings,
      {.workers = 4, .micro_batches = 3, .steps_per_epoch = 100, .total_steps = 1000, .shortest_micro_batch_s = 0.25});
  return document.check().report();
}

TEST(PartialGradients, WhatHasNoMeaningWithThemIsAFault) {
  using testing::HasSubstr;
  EXPECT_EQ(faults_of(""), "");
  EXPECT_EQ(faults_of("normalisation = \"computed\"\ncompensation = \"larger-batch\"\nredundancy = 0.5"), "");
  EXPECT_THAT(
      faults_of("normalisation = \"mean-rate\"\nmean_drop_rate = 0.1"),
      HasSubstr("normalisation = \"mean-rate\"; must be \"constant\" or \"computed\" with preempt = \"layer\""));
  for (const char* compensation : {"recompute", "carry-over"})
    EXPECT_THAT(faults_of("compensation = \"" + std::string(compensation) + "\""), HasSubstr("would count twice"));
  EXPECT_THAT(faults_of("forward_share = 0.5"), HasSubstr("threshold_s = 0.1; must be at least 0.125 s"));
}

}  // namespace
}  // namespace syncopate
