#include "algorithms/gossip/ad_psgd.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "algorithms/gossip/decentralized_sgd.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/kicked_workers.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const AdPsgd never_waits;
const AdPsgd waits_in_its_step({.overlap_steps = Step{0}});
const AdPsgd waits_after_a_step({.overlap_steps = Step{1}});

std::vector<std::shared_ptr<const DelayProcess>> delays(std::vector<double> delay_s) {
  return {std::make_shared<DelayOfWorker>(std::move(delay_s))};
}

double seconds_of(const SimulatedRun::Outcome& outcome, std::size_t worker, Activity activity) {
  return to_seconds(start_time + outcome.totals.accounts[worker][activity]);
}

TEST(AdPsgd, OneWorkerEqualsSgdBitForBit) {
  const SimulatedRun setup{.workers = 1, .micro_batches = 2, .momentum = 0.9, .budget = {.steps = 20}};
  EXPECT_EQ(setup.run(never_waits).parameters, setup.run(SyncSgd()).parameters);
}

// The active worker's request arrives during the first of a step's two micro-batches, and the passive worker's answer
// during the second. Both gradients are taken at the model that the step began with; weights decay at the mixed model.
TEST(AdPsgd, TwoEqualWorkersWhoseExchangesEndWithinAStepEqualDPsgdBitForBit) {
  SimulatedRun setup{.workers = 2, .micro_batches = 2, .network_s = 0.4, .budget = {.steps = 20}};
  setup.optimizer = make_sgd({.momentum = 0.9, .weight_decay = {.rate = 0.3}});
  const auto expected = setup.run(DecentralizedSgd());
  for (const AdPsgd& method : {never_waits, waits_in_its_step}) {
    const auto outcome = setup.run(method);
    EXPECT_EQ(outcome.parameters, expected.parameters);
    EXPECT_EQ(outcome.log, expected.log);
  }
}

// Without gradients only exchanges change the models, which converge to their mean.
TEST(AdPsgd, ExchangesPreserveTheMeanAndMakeModelsAlike) {
  for (const AdPsgd& method : {never_waits, waits_in_its_step, waits_after_a_step}) {
    const auto run = run_kicked({.workers = 6,
                                 .micro_batches = 2,
                                 .network_s = 0.3,
                                 .budget = {.steps = 80},
                                 .delays = {exponential_delay(0.7)}},
                                method);
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(run.outcome.parameters[i], 1.0 / 6, 1e-6);
      for (const auto& model : run.models) EXPECT_NEAR(model[i], 1.0 / 6, 1e-3);
    }
    EXPECT_EQ(run.outcome.totals.kept, (std::vector<std::int64_t>(6, 160)));
    expect_exact_accounts(run.outcome);
  }
}

// Steps take 1 s, messages 1.2 s. Worker 1 sends its first model, 0, as a request at 0 s, and its step moves it to e_1
// at 1 s. Worker 0 answers at 2 s with its own model e_0, and averages e_0 with the 0 that it received. Worker 1 finds
// the answer at 4 s and adds half of e_0 - 0; its own e_1 stays.
TEST(AdPsgd, WhatAWorkerHasDoneSinceItAskedStays) {
  const auto run = run_kicked({.workers = 2, .network_s = 1.2, .budget = {.steps = 4}}, never_waits);
  EXPECT_EQ(run.models[0], (std::vector<float>{0.5f, 0}));
  EXPECT_EQ(run.models[1], (std::vector<float>{0.5f, 1}));
}

// A step is one micro-batch of 1 s, a message takes 0.4 s. Worker 0 answers worker 1's first request at 1 s, and the
// answer arrives at 1.4 s. Worker 1 finds the answer after its second step, and asks again in the third. At the end
// worker 0 sends a farewell.
TEST(AdPsgd, NobodyWaitsForAnAnswer) {
  const SimulatedRun setup{.workers = 2, .network_s = 0.4, .budget = {.steps = 6}};
  const auto outcome = setup.run(never_waits);
  EXPECT_EQ(outcome.log.front(), "step 1 at 1.000 s: kept 2, dropped 0");
  EXPECT_EQ(outcome.log.back(), "step 6 at 6.000 s: kept 2, dropped 0");
  EXPECT_EQ(to_seconds(outcome.totals.end), 6.4);
  EXPECT_EQ(outcome.totals.messages, 3 * 2 + 1 + 1);
  EXPECT_EQ(outcome.totals.bytes, Bytes{3 * 2 * 16 + (16 + 8)});
  EXPECT_EQ(outcome.totals.collectives, 0);
  EXPECT_EQ(seconds_of(outcome, 1, Activity::compute), 6.0);
  expect_exact_accounts(outcome);
}

// With the same times worker 1 waits for its first answer until 1.4 s. It asks again at 1.4 s and 2.4 s, and has these
// answers at 2.4 s and 3.4 s.
TEST(AdPsgd, WithoutOverlapAnActiveWorkerWaitsInEachStep) {
  const SimulatedRun setup{.workers = 2, .network_s = 0.4, .budget = {.steps = 3}};
  const auto outcome = setup.run(waits_in_its_step);
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 1 at 1.400 s: kept 2, dropped 0",
                             "step 2 at 2.400 s: kept 2, dropped 0",
                             "step 3 at 3.400 s: kept 2, dropped 0",
                         }));
  EXPECT_EQ(outcome.totals.messages, 3 * 2 + 1 + 1);
}

// Worker 0 takes 10 s per step, worker 1 takes 1 s. Worker 1 asks at 0 s and has the answer at 10.5 s. With
// `overlap_steps` = 1, its second step ends only then. Without the bound worker 1 waits only after its last step, whose
// time is not checked.
TEST(AdPsgd, OverlapStepsBoundForHowLongAWorkerGoesOn) {
  const SimulatedRun setup{
      .workers = 2, .budget = {.steps = 3}, .delays = delays({9, 0}), .individual_models_every = Step{1}};
  const auto going_on = setup.run(never_waits), bounded = setup.run(waits_after_a_step);
  const auto steps_of_worker_1 = [](const SimulatedRun::Outcome& outcome) {
    std::vector<double> at_s;
    for (const WorkerModel& model : outcome.individual_models)
      if (model.worker == Rank{1}) at_s.push_back(to_seconds(model.time));
    return at_s;
  };
  EXPECT_THAT(steps_of_worker_1(going_on), ElementsAre(1, 2));
  EXPECT_THAT(steps_of_worker_1(bounded), ElementsAre(1, 10.5));
  EXPECT_EQ(going_on.log.back(), "step 3 at 30.000 s: kept 2, dropped 0");
  EXPECT_EQ(bounded.log.back(), "step 3 at 30.000 s: kept 2, dropped 0");
  expect_exact_accounts(going_on);
  expect_exact_accounts(bounded);
}

// The worker that leaves in the middle of exchanges is active (1, 5) or passive (0, 2). Worker 0 also publishes.
TEST(AdPsgd, TheOthersGoOnWithoutAWorkerThatHasLeft) {
  for (const AdPsgd& method : {never_waits, waits_in_its_step, waits_after_a_step})
    for (const std::size_t leaver : {0u, 1u, 2u, 5u}) {
      std::vector<std::optional<Step>> data_of(6);
      data_of[leaver] = Step{4};
      const auto run = run_kicked(
          {.workers = 6, .budget = {.steps = 90}, .delays = {exponential_delay(0.5)}, .data_of = data_of}, method);
      const std::size_t other = leaver == 3 ? 4 : 3;
      for (std::size_t worker = 0; worker < 6; ++worker) {
        EXPECT_EQ(run.outcome.totals.kept[worker], worker == leaver ? 4 : 90);
        for (std::size_t i = 0; i < 6 && worker != leaver; ++i)
          EXPECT_NEAR(run.models[worker][i], run.models[other][i], 1e-2);
      }
      expect_exact_accounts(run.outcome);
    }
}

// The two passive workers leave.
TEST(AdPsgd, WorkersWithoutPartnersTrainOnAlone) {
  for (const AdPsgd& method : {never_waits, waits_in_its_step}) {
    const SimulatedRun setup{
        .workers = 4, .budget = {.steps = 12}, .data_of = {Step{2}, {}, Step{3}, {}}, .objective = nullptr};
    EXPECT_EQ(setup.run(method).totals.kept, (std::vector<std::int64_t>{2, 12, 3, 12}));
  }
}

TEST(AdPsgd, ABudgetOfSecondsEndsForAll) {
  for (const AdPsgd& method : {never_waits, waits_in_its_step})
    for (const std::size_t slow : {0u, 1u, 4u}) {
      std::vector<double> delay_s(5);
      delay_s[slow] = 1;
      const SimulatedRun setup{.workers = 5, .budget = {.seconds = 20}, .delays = delays(delay_s)};
      const auto outcome = setup.run(method);
      EXPECT_GE(to_seconds(outcome.totals.end), 20);
      EXPECT_LE(to_seconds(outcome.totals.end), 24);
      expect_exact_accounts(outcome);
    }
}

// Each of 16 workers takes 2,000 steps of 6 +- 0.4 s. The run lasts as long as the slowest worker, plus one message of
// 0.5 s.
TEST(AdPsgd, ItsTimeIsThatOfWorkersWhoTrainAlone) {
  const PredictedRun setting{.steps = 2000};
  constexpr double expected_maximum_of_16 = 1.765991393;
  const double expected_s = 6 + (0.4 * std::sqrt(2000) * expected_maximum_of_16 + 0.5) / 2000;
  // Three standard deviations of one worker's mean step, 0.4 / sqrt(2000) = 0.009 s. The deviation of the maximum is
  // smaller.
  EXPECT_NEAR(setting.simulate(never_waits).step_s, expected_s, 3 * 0.009);
  const PredictedRun unlike{.workers = 4, .delays = delays({0, 2, 0, 0}), .steps = 40};
  EXPECT_NEAR(unlike.simulate(never_waits).step_s, 12 + 0.5 / 40, 1.0 / 40);  // 0.5 s for an answer at the end
}

std::vector<Rank> active_of(const Bipartition& bipartition, int workers) {
  std::vector<Rank> active;
  for (int rank = 0; rank < workers; ++rank)
    if (bipartition.is_active(Rank{rank})) active.push_back(Rank{rank});
  return active;
}

TEST(Bipartition, AreTheColoursOfAGraph) {
  EXPECT_THAT(active_of(Bipartition::by_parity(5), 5), ElementsAre(Rank{1}, Rank{3}));
  EXPECT_THAT(Bipartition::by_parity(5).all_partners(Rank{3}), ElementsAre(Rank{0}, Rank{2}, Rank{4}));
  EXPECT_THAT(Bipartition::by_parity(5).all_partners(Rank{2}), ElementsAre(Rank{1}, Rank{3}));
  EXPECT_THAT(active_of(*Bipartition::of(*ring(6)), 6), ElementsAre(Rank{1}, Rank{3}, Rank{5}));
  EXPECT_THAT(Bipartition::of(*ring(6))->all_partners(Rank{0}), ElementsAre(Rank{1}, Rank{5}));
  EXPECT_THAT(active_of(*Bipartition::of(*hypercube(8)), 8), ElementsAre(Rank{1}, Rank{2}, Rank{4}, Rank{7}));
  EXPECT_THAT(active_of(*Bipartition::of(*torus(2, 2)), 4), ElementsAre(Rank{1}, Rank{2}));
  EXPECT_FALSE(Bipartition::of(*ring(5)));
  EXPECT_FALSE(Bipartition::of(*torus(2, 3)));
  EXPECT_FALSE(Bipartition::of(*exponential_graph(6)));
  EXPECT_FALSE(Bipartition::of(*complete_graph(3)));
}

TEST(AdPsgdSettings, BipartiteGraphsAreRead) {
  const auto faults = [](const std::string& keys, int workers) {
    return read_method("algorithm = \"ad-psgd\"\n" + keys, {.workers = workers}).faults;
  };
  EXPECT_EQ(faults("", 5), "");
  EXPECT_EQ(faults("overlap_steps = 0\ngraph = { kind = \"ring\" }", 6), "");
  EXPECT_EQ(faults("graph = { kind = \"hypercube\" }", 8), "");
  EXPECT_THAT(faults("graph = { kind = \"ring\" }", 5), HasSubstr("test.toml:2:9: graph"));
  EXPECT_THAT(faults("graph = { kind = \"ring\" }", 5), HasSubstr("must be bipartite"));
  EXPECT_THAT(faults("graph = { kind = \"ring\" }", 65'538), HasSubstr("allows at most 65536 workers, found 65538"));
  EXPECT_THAT(faults("overlap_steps = -1", 4), HasSubstr("overlap_steps = -1; must be"));
  EXPECT_THAT(faults("graph = { kind = \"torus\", weights = \"given\" }", 4), HasSubstr("weights"));
}

}  // namespace
}  // namespace syncopate
