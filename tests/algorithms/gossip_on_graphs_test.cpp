// D-PSGD and SGP on other graphs than their own.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "algorithms/gossip/decentralized_sgd.hpp"
#include "algorithms/gossip/graph.hpp"
#include "algorithms/gossip/stochastic_gradient_push.hpp"
#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/kicked_workers.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

DecentralizedSgd mixing_on(GossipGraphPtr graph) { return DecentralizedSgd(OwnModels::mean, std::move(graph)); }
StochasticGradientPush pushing_on(GossipGraphPtr graph) { return StochasticGradientPush({.graph = std::move(graph)}); }

TEST(GossipOnGraphs, ThatOfTheMethodItselfChangesNoBit) {
  for (const int workers : {1, 2, 5, 8}) {
    const SimulatedRun setup{.workers = workers, .momentum = 0.9, .budget = {.steps = 20}};
    const auto ring_run = setup.run(DecentralizedSgd()), on_ring = setup.run(mixing_on(ring(workers)));
    EXPECT_EQ(ring_run.parameters, on_ring.parameters);
    EXPECT_EQ(ring_run.log, on_ring.log);
    const auto push = setup.run(StochasticGradientPush()),
               on_its = setup.run(pushing_on(one_peer_exponential(workers)));
    EXPECT_EQ(push.parameters, on_its.parameters);
    EXPECT_EQ(push.log, on_its.log);
  }
}

// All models are the mean after each step, as with a round of one local step.
TEST(GossipOnGraphs, PushesToAllEqualLocalSgdWithRoundsOfOneStep) {
  const SimulatedRun setup{.workers = 5, .micro_batches = 2, .momentum = 0.9, .budget = {.steps = 20}};
  const auto pushed = setup.run(pushing_on(complete_graph(5)));
  const auto averaged = setup.run(LocalSgd(make_constant_period(1), {}));
  for (std::size_t i = 0; i < averaged.parameters.size(); ++i)
    EXPECT_NEAR(pushed.parameters[i], averaged.parameters[i], 1e-5 * std::abs(averaged.parameters[i]));
}

TEST(GossipOnGraphs, OnTheCompleteGraphAllModelsAreTheirMeanAfterOneMixing) {
  for (const auto& run : {run_kicked({.workers = 6, .budget = {.steps = 2}}, mixing_on(complete_graph(6))),
                          run_kicked({.workers = 6, .budget = {.steps = 1}}, pushing_on(complete_graph(6)))})
    for (const auto& model : run.models)
      for (const float value : model) EXPECT_NEAR(value, 1.0 / 6, 1e-6);
}

TEST(GossipOnGraphs, WithLinearGradientsTheMeanOfTheModelsIsThatOfSynchronousSgd) {
  const SimulatedRun setup{.workers = 8, .micro_batches = 2, .momentum = 0.9, .budget = {.steps = 20}};
  const auto expected = setup.run(SyncSgd());
  for (const GossipGraphPtr& graph :
       {torus(2, 4), hypercube(8), exponential_graph(8), one_peer_exponential(8), complete_graph(8)}) {
    const auto outcome = setup.run(mixing_on(graph));
    for (std::size_t i = 0; i < expected.parameters.size(); ++i)
      EXPECT_NEAR(outcome.parameters[i], expected.parameters[i], 1e-5 * std::abs(expected.parameters[i]));
  }
}

// How far the models are from their mean, all together.
double spread(const KickedRun& run) {
  const auto workers = run.models.size();
  double sum = 0;
  for (std::size_t j = 0; j < workers; ++j) {
    double mean = 0;
    for (const auto& model : run.models) mean += model[j] / static_cast<double>(workers);
    for (const auto& model : run.models) sum += (model[j] - mean) * (model[j] - mean);
  }
  return std::sqrt(sum);
}

// Without gradients differences shrink by |lambda_2| per exchange once the slowest of them alone are left.
TEST(GossipOnGraphs, WithoutGradientsModelsComeTogetherAtTheRateOfTheSpectralGap) {
  struct Case {
    GossipGraphPtr graph;
    int from, to;  // exchanges, whole cycles apart
  };
  for (const Case& c :
       {Case{ring(8), 20, 24}, Case{torus(4, 4), 10, 14}, Case{torus(3, 4), 10, 14}, Case{hypercube(8), 10, 12},
        Case{exponential_graph(8), 14, 16}, Case{exponential_graph(6), 8, 10}, Case{one_peer_exponential(12), 4, 8}}) {
    const int workers = c.graph->workers();
    const double expected = std::pow(1 - c.graph->spectral_gap(), c.to - c.from);
    const auto ratio = [&](const Algorithm& method, int first) {
      const SimulatedRun before{.workers = workers, .budget = {.steps = c.from + first}};
      const SimulatedRun after{.workers = workers, .budget = {.steps = c.to + first}};
      return spread(run_kicked(after, method)) / spread(run_kicked(before, method));
    };
    const double tolerance = (c.graph->cycle() > 1 ? 0.25 : 0.03) * expected;
    EXPECT_NEAR(ratio(mixing_on(c.graph), 1), expected, tolerance) << workers;
    EXPECT_NEAR(ratio(pushing_on(c.graph), 0), expected, tolerance) << workers;
  }
}

// Weights of which only the columns sum to 1: after t exchanges worker i has row i of the matrix's t-th power, divided
// by its sum.
TEST(GossipOnGraphs, PushSumCorrectsForWeightsThatAreNotDoublyStochastic) {
  constexpr int workers = 4, steps = 5;
  const std::vector<WeightedLink> links = {{0, 1, 0.5}, {0, 2, 0.25}, {1, 2, 0.5}, {2, 3, 0.125}, {3, 0, 0.75}};
  double power[workers][workers] = {};
  for (int i = 0; i < workers; ++i) power[i][i] = 1;
  for (int step = 0; step < steps; ++step) {
    double next[workers][workers] = {};
    for (int j = 0; j < workers; ++j) {
      double kept[workers] = {1, 1, 1, 1};
      for (const auto& [from, to, weight] : links) {
        kept[from] -= weight;
        next[to][j] += weight * power[from][j];
      }
      for (int i = 0; i < workers; ++i) next[i][j] += kept[i] * power[i][j];
    }
    std::copy(&next[0][0], &next[0][0] + workers * workers, &power[0][0]);
  }
  // With weights that differ a step of e_i along the kick is divided by the weight of that step, which is 1 at first.
  const auto run = run_kicked({.workers = workers, .budget = {.steps = steps}},
                              pushing_on(std::make_shared<WeightedGraph>(workers, links)));
  for (std::size_t i = 0; i < workers; ++i) {
    const double sum = std::accumulate(power[i], power[i] + workers, 0.0);
    for (std::size_t j = 0; j < workers; ++j) EXPECT_NEAR(run.models[i][j], power[i][j] / sum, 1e-6);
  }
  for (const float value : run.outcome.parameters) EXPECT_NEAR(value, 0.25, 1e-6);  // their weighted mean
}

// Links that go one way and change. Worker 3 takes 2 s per step, the others 1 s; messages 0.5 s. In step 2 worker 1
// hears from worker 3, whose second message is sent at 2 s; in step 3 worker 0 does, at 4 s. Workers 0 and 2 go on to
// 3 s without waiting.
TEST(GossipOnGraphs, OnlyWhoHearsFromASlowWorkerWaitsForIt) {
  const SimulatedRun setup{.workers = 4,
                           .budget = {.steps = 3},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.0, 0.0, 1.0})}};
  const auto outcome = setup.run(mixing_on(one_peer_exponential(4)));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 1 at 2.000 s: kept 4, dropped 0",
                             "step 2 at 4.000 s: kept 4, dropped 0",
                             "step 3 at 6.000 s: kept 4, dropped 0",
                         }));
  const auto seconds = [&](std::size_t worker, Activity activity) {
    return to_seconds(start_time + outcome.totals.accounts[worker][activity]);
  };
  EXPECT_EQ(seconds(1, Activity::communicate), 0.5);
  EXPECT_EQ(seconds(2, Activity::communicate), 0);
  EXPECT_EQ(seconds(3, Activity::communicate), 0);
  EXPECT_EQ(to_seconds(outcome.totals.end), 6.5);
  expect_exact_accounts(outcome);
}

TEST(GossipOnGraphs, BytesAreAModelPerLink) {
  struct Case {
    GossipGraphPtr graph;
    int links;
  };
  for (const auto& [graph, links] : {Case{torus(3, 4), 48}, Case{hypercube(8), 24}, Case{exponential_graph(6), 18},
                                     Case{complete_graph(5), 20}, Case{one_peer_exponential(6), 6}}) {
    const int others = graph->workers() - 1;
    const SimulatedRun setup{.workers = graph->workers(), .budget = {.steps = 7}, .objective = nullptr};
    const auto mixed = setup.run(mixing_on(graph)).totals, pushed = setup.run(pushing_on(graph)).totals;
    EXPECT_EQ(mixed.messages, 7 * links + others);
    EXPECT_EQ(mixed.bytes, Bytes{7 * links * 16 + others * (16 + 8)});
    EXPECT_EQ(pushed.messages, 7 * links + others);
    EXPECT_EQ(pushed.bytes, Bytes{(7 * links + others) * (16 + 8)});
    const LearningRate rate({.peak = 0.1});
    const CommunicationInput input{
        .workers = graph->workers(), .parameter_bytes = Bytes{16}, .steps = Step{7}, .learning_rate = rate};
    EXPECT_EQ(mixing_on(graph).communication(input), (Communicated{7, mixed.bytes}));
    EXPECT_EQ(pushing_on(graph).communication(input), (Communicated{7, pushed.bytes}));
  }
}

TEST(GossipOnGraphs, TheOthersGoOnWithoutAWorkerThatHasLeft) {
  for (const GossipGraphPtr& graph : {torus(2, 4), hypercube(8), exponential_graph(8), complete_graph(8)})
    for (const std::size_t leaver : {0u, 3u})
      for (const bool pushes : {false, true}) {
        std::vector<std::optional<Step>> data_of(8);
        data_of[leaver] = Step{4};
        const SimulatedRun setup{
            .workers = 8, .budget = {.steps = 80}, .delays = {exponential_delay(0.5)}, .data_of = data_of};
        const auto run = pushes ? run_kicked(setup, pushing_on(graph)) : run_kicked(setup, mixing_on(graph));
        const std::size_t other = leaver == 0 ? 1 : 0;
        for (std::size_t worker = 0; worker < 8; ++worker) {
          EXPECT_EQ(run.outcome.totals.kept[worker], worker == leaver ? 4 : 80);
          EXPECT_NEAR(std::accumulate(run.models[worker].begin(), run.models[worker].end(), 0.0), 1, 1e-5);
          for (std::size_t i = 0; i < 8 && worker != leaver; ++i)
            EXPECT_NEAR(run.models[worker][i], run.models[other][i], 1e-5);
        }
        expect_exact_accounts(run.outcome);
      }
}

}  // namespace
}  // namespace syncopate
