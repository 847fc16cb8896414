// Graphs for gossip: which workers send to each other, and how fast their models become equal.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "algorithms/gossip/decentralized_sgd.hpp"
#include "algorithms/gossip/gossip.hpp"
#include "algorithms/gossip/stochastic_gradient_push.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/kicked_workers.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "workers/base/units.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::vector<Rank> others(const std::vector<Neighbour>& links) {
  std::vector<Rank> ranks;
  for (const Neighbour& link : links) ranks.push_back(link.worker);
  return ranks;
}

std::vector<Rank> receivers(const GossipGraphPtr& graph, int sender, int exchange = 0) {
  return others(graph->receivers(Rank{sender}, Step{exchange}));
}

TEST(GossipGraph, NeighboursOnARingAreNamedOnce) {
  EXPECT_THAT(receivers(ring(1), 0), IsEmpty());
  EXPECT_THAT(receivers(ring(2), 1), ElementsAre(Rank{0}));
  EXPECT_THAT(receivers(ring(5), 0), ElementsAre(Rank{4}, Rank{1}));
  EXPECT_THAT(others(ring(5)->senders(Rank{0}, Step{7})), ElementsAre(Rank{4}, Rank{1}));
}

TEST(GossipGraph, OnATorusTheFourBesideOneAreNeighboursEachOnce) {
  // 0 1 2 3
  // 4 5 6 7
  // 8 9 10 11
  EXPECT_THAT(receivers(torus(3, 4), 5), UnorderedElementsAre(Rank{1}, Rank{9}, Rank{4}, Rank{6}));
  EXPECT_THAT(receivers(torus(3, 4), 8), UnorderedElementsAre(Rank{4}, Rank{0}, Rank{11}, Rank{9}));
  EXPECT_THAT(receivers(torus(2, 3), 1), UnorderedElementsAre(Rank{4}, Rank{0}, Rank{2}));
  EXPECT_THAT(receivers(torus(2, 2), 3), UnorderedElementsAre(Rank{1}, Rank{2}));
}

TEST(GossipGraph, NeighboursOnAHypercubeDifferInOneBit) {
  EXPECT_THAT(receivers(hypercube(8), 5), UnorderedElementsAre(Rank{4}, Rank{7}, Rank{1}));
  EXPECT_THAT(receivers(hypercube(1), 0), IsEmpty());
}

TEST(GossipGraph, OnExponentialGraphsReceiversArePowersOfTwoAway) {
  EXPECT_THAT(receivers(exponential_graph(6), 4), ElementsAre(Rank{5}, Rank{0}, Rank{2}));
  EXPECT_THAT(receivers(one_peer_exponential(6), 4, 0), ElementsAre(Rank{5}));
  EXPECT_THAT(receivers(one_peer_exponential(6), 4, 1), ElementsAre(Rank{0}));
  EXPECT_THAT(receivers(one_peer_exponential(6), 4, 2), ElementsAre(Rank{2}));
  EXPECT_THAT(receivers(one_peer_exponential(6), 4, 3), ElementsAre(Rank{5}));
  EXPECT_THAT(one_peer_exponential(6)->all_receivers(Rank{4}), ElementsAre(Rank{5}, Rank{0}, Rank{2}));
  EXPECT_THAT(receivers(one_peer_exponential(1), 0, 3), IsEmpty());
}

TEST(GossipGraph, OnTheCompleteGraphAllOthersAreNeighbours) {
  EXPECT_THAT(receivers(complete_graph(4), 2), ElementsAre(Rank{0}, Rank{1}, Rank{3}));
  EXPECT_THAT(receivers(complete_graph(1), 0), IsEmpty());
}

std::vector<GossipGraphPtr> all_of(int workers) {
  std::vector<GossipGraphPtr> graphs = {ring(workers), complete_graph(workers), exponential_graph(workers),
                                        one_peer_exponential(workers)};
  if (workers % 3 == 0) graphs.push_back(torus(3, workers / 3));
  if (workers % 2 == 0) graphs.push_back(torus(2, workers / 2));
  if ((workers & (workers - 1)) == 0) graphs.push_back(hypercube(workers));
  return graphs;
}

// Senders and receivers describe the same links. Each worker gives away the share that it takes of others' models.
TEST(GossipGraph, SendersAndReceiversAreTheSameLinks) {
  for (const int workers : {1, 2, 3, 5, 6, 8, 9, 12, 16})
    for (const GossipGraphPtr& graph : all_of(workers)) {
      EXPECT_EQ(graph->workers(), workers);
      for (Step exchange{0}; exchange < 9; ++exchange)
        for (const Rank sender : Ranks(workers)) {
          double given = 0, taken = 0;
          for (const auto& [receiver, weight] : graph->receivers(sender, exchange)) {
            EXPECT_NE(receiver, sender);
            given += weight;
            const std::vector<Neighbour> back = graph->senders(receiver, exchange);
            EXPECT_EQ(std::ranges::count(back, Neighbour{sender, weight}), 1);
          }
          for (const Neighbour& link : graph->senders(sender, exchange)) taken += link.weight;
          EXPECT_NEAR(given, taken, 1e-12);
          EXPECT_LE(given, 1 - graph->least_kept() + 1e-12);
        }
    }
}

TEST(GossipGraph, MessagesAreWhatAllWorkersSend) {
  EXPECT_EQ(ring(6)->messages_in(Step{7}), 7 * 6 * 2);
  EXPECT_EQ(torus(3, 4)->messages_in(Step{7}), 7 * 12 * 4);
  EXPECT_EQ(hypercube(8)->messages_in(Step{7}), 7 * 8 * 3);
  EXPECT_EQ(exponential_graph(6)->messages_in(Step{7}), 7 * 6 * 3);
  EXPECT_EQ(one_peer_exponential(6)->messages_in(Step{7}), 7 * 6);
  EXPECT_EQ(one_peer_exponential(1)->messages_in(Step{7}), 0);
  EXPECT_EQ(complete_graph(6)->messages_in(Step{7}), 7 * 6 * 5);
}

// Spectral gaps are (2/3)(1 - cos(2 pi / n)) on a ring, (2/5)(1 - cos(2 pi / a)) on a torus a x a, and 2 / (log2 n + 1)
// on a hypercube and the exponential graph.
TEST(GossipGraph, SpectralGapsAreThoseOfTheClosedForms) {
  EXPECT_NEAR(ring(8)->spectral_gap(), 0.195262, 5e-7);
  EXPECT_NEAR(ring(16)->spectral_gap(), 0.050747, 5e-7);
  EXPECT_NEAR(ring(64)->spectral_gap(), 0.003210, 5e-7);
  EXPECT_NEAR(torus(4, 4)->spectral_gap(), 0.4, 5e-7);
  EXPECT_NEAR(torus(8, 8)->spectral_gap(), 0.117157, 5e-7);
  for (const auto& of : {hypercube, exponential_graph}) {
    EXPECT_NEAR(of(8)->spectral_gap(), 0.5, 5e-7);
    EXPECT_NEAR(of(16)->spectral_gap(), 0.4, 5e-7);
    EXPECT_NEAR(of(64)->spectral_gap(), 0.285714, 5e-7);
  }
  for (const int workers : {2, 8, 64}) {
    EXPECT_EQ(complete_graph(workers)->spectral_gap(), 1);
    EXPECT_EQ(one_peer_exponential(workers)->spectral_gap(), 1);  // all models are the mean after log2 n exchanges
  }
  EXPECT_LT(one_peer_exponential(12)->spectral_gap(), 1);
}

// Compares each graph's closed form with the same graph, given link by link and evaluated by powers of its matrix.
TEST(GossipGraph, WavesHaveTheEigenvaluesOfTheMatrix) {
  for (const int workers : {2, 3, 5, 6, 8, 9, 12, 16})
    for (const GossipGraphPtr& graph : all_of(workers)) {
      if (graph->cycle() > 1) continue;
      std::vector<WeightedLink> links;
      for (const Rank sender : Ranks(workers))
        for (const auto& [receiver, weight] : graph->receivers(sender, Step{0}))
          links.push_back({sender.value, receiver.value, weight});
      const WeightedGraph given(workers, links);
      EXPECT_NEAR(given.second_eigenvalue(), graph->second_eigenvalue(), 1e-9) << workers;
      EXPECT_NEAR(given.least_kept(), graph->least_kept(), 1e-12);
      EXPECT_NEAR(given.least_weight(), 1, 1e-9);
      EXPECT_FALSE(given.why_not_doubly_stochastic());
      EXPECT_FALSE(given.why_not_connected());
    }
}

TEST(WeightedGraph, WeightsOfPushSumGoToTheFixedPoint) {
  // Worker 0 gives away half of its weight, worker 1 a quarter. So they have 2/3 and 4/3 of a total weight of 2.
  const WeightedGraph graph(2, {{0, 1, 0.5}, {1, 0, 0.25}});
  EXPECT_NEAR(graph.least_weight(), 2.0 / 3, 1e-8);
  EXPECT_NEAR(graph.least_kept(), 0.5, 1e-12);
  EXPECT_NEAR(graph.second_eigenvalue(), 0.25, 1e-9);  // the trace, 5/4, minus the first eigenvalue, 1
  EXPECT_FALSE(graph.why_not_column_stochastic());
  EXPECT_THAT(*graph.why_not_doubly_stochastic(),
              testing::HasSubstr("worker 0 sends shares of 0.5 in all and receives 0.25"));
}

// A star of three workers: the hub has two neighbours, the others have one.
TEST(WeightedGraph, MetropolisWeightsAreDoublyStochasticWhereDegreesDiffer) {
  std::vector<WeightedLink> links = {{0, 1, 0}, {1, 0, 0}, {0, 2, 0}, {2, 0, 0}};
  weigh(links, 3, LinkWeights::metropolis);
  for (const WeightedLink& link : links) EXPECT_DOUBLE_EQ(link.weight, 1.0 / 3);
  EXPECT_FALSE(WeightedGraph(3, links).why_not_doubly_stochastic());
  weigh(links, 3, LinkWeights::degree);
  EXPECT_DOUBLE_EQ(links[0].weight, 1.0 / 3);
  EXPECT_DOUBLE_EQ(links[1].weight, 1.0 / 2);
  EXPECT_FALSE(WeightedGraph(3, links).why_not_column_stochastic());
  EXPECT_TRUE(WeightedGraph(3, links).why_not_doubly_stochastic());
}

using testing::HasSubstr;

constexpr const char* d_psgd = "decentralized-sgd";
constexpr const char* sgp = "stochastic-gradient-push";

MethodReading reading(const std::string& method, const std::string& graph, int workers) {
  return read_method("algorithm = \"" + method + "\"\ngraph = { " + graph + " }", {.workers = workers});
}

class GraphSettings : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("syncopate-graph-{}", getpid());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // The table for a file with this content.
  std::string file(const std::string& content, const std::string& keys = "") const {
    std::filesystem::create_directories(folder_);
    const auto path = folder_ / "links.csv";
    std::ofstream(path) << content;
    return fmt::format("kind = \"file\", file = \"{}\"{}", path.string(), keys);
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(GraphSettings, EachKindIsRead) {
  for (const std::string method : {d_psgd, sgp})
    for (const std::string kind : {"ring", "torus", "hypercube", "exponential", "one-peer-exponential", "complete"})
      EXPECT_EQ(reading(method, "kind = \"" + kind + "\"", 16).faults, "") << method << kind;
  EXPECT_EQ(reading(d_psgd, "kind = \"torus\", rows = 2", 10).faults, "");
  EXPECT_EQ(read_method("algorithm = \"decentralized-sgd\"").resolved.find("graph"), std::string::npos);
}

// The torus has 12 workers in 3 rows of 4, and 4 messages per worker and step; a ring would have 2.
TEST_F(GraphSettings, TheGraphThatIsReadIsThatOfTheRun) {
  const auto method = reading(d_psgd, "kind = \"torus\"", 12);
  EXPECT_THAT(method.resolved, HasSubstr("rows = 3"));
  const SimulatedRun setup{.workers = 12, .budget = {.steps = 3}, .objective = nullptr};
  EXPECT_EQ(setup.run(*method.algorithm).totals.messages, 3 * 12 * 4 + 11);
  EXPECT_EQ(setup.run(*reading(d_psgd, "kind = \"torus\", rows = 2", 12).algorithm).totals.messages, 3 * 12 * 3 + 11);
}

TEST_F(GraphSettings, WorkersThatDoNotFitTheGraphAreFaults) {
  EXPECT_THAT(
      reading(d_psgd, "kind = \"torus\", rows = 3", 8).faults,
      HasSubstr("test.toml:2:34: graph.rows = 3; must divide the number of workers, 8, into rows of at least 2"));
  EXPECT_THAT(reading(sgp, "kind = \"torus\", rows = 4", 4).faults, HasSubstr("into rows of at least 2"));
  EXPECT_THAT(reading(d_psgd, "kind = \"torus\"", 7).faults,
              HasSubstr("needs a number of workers that forms rows and columns of at least 2, found 7"));
  EXPECT_THAT(reading(d_psgd, "kind = \"hypercube\"", 12).faults,
              HasSubstr("graph.kind = \"hypercube\"; needs a power of two workers, found 12"));
  EXPECT_THAT(reading(d_psgd, "kind = \"rings\"", 4).faults, HasSubstr("did you mean \"ring\""));
  EXPECT_THAT(reading(d_psgd, "rows = 2", 4).faults, HasSubstr("graph.kind"));
}

TEST_F(GraphSettings, GraphsForPairsNeedABipartition) {
  const auto faults = [](const std::string& table) { return reading("ad-psgd", table, 4).faults; };
  EXPECT_EQ(faults(file("from,to\n1,0\n1,2\n3,1\n")), "");
  EXPECT_THAT(faults(file("from,to\n1,0\n1,2\n0,2\n2,3\n")), HasSubstr("must be bipartite"));
  EXPECT_THAT(faults(file("from,to\n0,1\n2,3\n")), HasSubstr("must be connected"));
  EXPECT_THAT(faults("kind = \"complete\""), HasSubstr("kind = \"complete\"; must be"));
  EXPECT_THAT(faults(file("from,to\n1,0\n1,2\n3,1\n", ", weights = \"given\"")), HasSubstr("graph.weights"));
}

// A star: the hub keeps a third of its model, and Metropolis weights give each link a third.
TEST_F(GraphSettings, AFileOfLinksIsTheGraph) {
  const std::string star = "# the hub is 1\nfrom,to\n1,0\n1,2\n3,1\n";
  EXPECT_EQ(reading(sgp, file(star), 4).faults, "");
  const auto method = reading(d_psgd, file(star, ", weights = \"metropolis\""), 4);
  ASSERT_EQ(method.faults, "");
  EXPECT_THAT(method.resolved, HasSubstr("file_hash"));
  const auto run = run_kicked({.workers = 4, .budget = {.steps = 2}}, *method.algorithm);
  const std::vector<std::vector<float>> quarters = {
      {0.75f, 0.25f, 0, 0}, {0.25f, 0.25f, 0.25f, 0.25f}, {0, 0.25f, 0.75f, 0}, {0, 0.25f, 0, 0.75f}};
  EXPECT_EQ(run.models, quarters);
}

TEST_F(GraphSettings, GivenWeightsAreThoseOfTheMixing) {
  const auto method = reading(
      d_psgd, file("to,from,weight\n1,0,0.125\n2,1,0.125\n0,2,0.125\n", ", directed = true, weights = \"given\""), 3);
  ASSERT_EQ(method.faults, "");
  const auto run = run_kicked({.workers = 3, .budget = {.steps = 2}}, *method.algorithm);
  const std::vector<std::vector<float>> expected = {{0.875f, 0, 0.125f}, {0.125f, 0.875f, 0}, {0, 0.125f, 0.875f}};
  EXPECT_EQ(run.models, expected);
}

TEST_F(GraphSettings, AGraphThatDoesNotMixAsItsMethodNeedsIsAFault) {
  const auto faults = [](const std::string& method, const std::string& table) {
    return reading(method, table, 4).faults;
  };
  const std::string halves = "from,to\n0,1\n2,3\n";
  EXPECT_THAT(faults(d_psgd, file(halves)), HasSubstr("must be connected: there is no path from worker 0 to worker 2"));
  EXPECT_THAT(faults(sgp, file(halves)), HasSubstr("must be connected"));
  EXPECT_THAT(faults(sgp, file("from,to\n0,1\n1,2\n2,0\n1,3\n", ", directed = true")),
              HasSubstr("must be connected: there is no path from worker 3 to worker 0"));

  const std::string star = "from,to\n1,0\n1,2\n3,1\n";
  EXPECT_THAT(
      faults(d_psgd, file(star)),
      HasSubstr("must be doubly stochastic: worker 0 sends shares of 0.5 in all and receives 0.25; use weights = "
                "\"metropolis\""));
  EXPECT_EQ(faults(sgp, file(star)), "");

  const std::string heavy = "from,to,weight\n0,1,0.5\n1,2,0.5\n2,3,0.5\n";
  EXPECT_THAT(faults(sgp, file(heavy, ", weights = \"given\"")),
              HasSubstr("must leave each worker a share of its own model: worker 1 sends shares of 1 in all"));
}

TEST_F(GraphSettings, AFileThatIsNoGraphIsAFaultOfItsLine) {
  const auto faults = [&](const std::string& content, const std::string& keys = "") {
    return reading(d_psgd, file(content, keys), 4).faults;
  };
  EXPECT_THAT(faults("a,b\n0,1\n"), HasSubstr("links.csv:1: the column from is missing"));
  EXPECT_THAT(faults("from,to\n0,1\n", ", weights = \"given\""), HasSubstr("the column weight is missing"));
  const std::string weighted = "# a path\nweight,from,to\n0.5,0,1\n0.5,1,2\n0.5,2,3\n";
  EXPECT_THAT(faults(weighted), HasSubstr("links.csv:2: has a column weight; set weights = \"given\" to use it"));
  EXPECT_EQ(faults(weighted, ", weights = \"metropolis\""), "");
  EXPECT_EQ(reading("ad-psgd", file(weighted), 4).faults, "") << "where pairs meet there are no weights";
  EXPECT_THAT(faults("from,to\n0,4\n"), HasSubstr("links.csv:2: to = 4; must be an integer from 0 to 3"));
  EXPECT_THAT(faults("from,to\n0,x\n"), HasSubstr("links.csv:2: to = x; must be a finite number"));
  EXPECT_THAT(faults("from,to\n0,1\n1,0\n"), HasSubstr("links.csv:3: lists the link between 1 and 0 again"));
  EXPECT_THAT(faults("from,to\n2,2\n"),
              HasSubstr("links.csv:2: links worker 2 with itself; must link two different workers"));
  EXPECT_THAT(faults("from,to,weight\n0,1,1.5\n", ", weights = \"given\""),
              HasSubstr("links.csv:2: weight = 1.5; must be above 0 and below 1"));
  EXPECT_THAT(faults(""), HasSubstr("the file is empty"));
  EXPECT_THAT(reading(d_psgd, "kind = \"file\", file = \"nowhere.csv\"", 4).faults, HasSubstr("there is no file"));
  EXPECT_THAT(reading(d_psgd, "kind = \"file\"", 4).faults, HasSubstr("graph.file"));
  EXPECT_THAT(faults("from,to\n0,1\n1,2\n2,3\n", ", directed = true, weights = \"metropolis\""),
              HasSubstr("must be \"degree\" or \"given\" with directed = true"));
  EXPECT_THAT(reading(d_psgd, file("from,to\n0,1\n"), 513).faults, HasSubstr("file allows at most 512 workers"));
}

// D-PSGD and SGP on graphs that their papers do not use.

DecentralizedSgd mixing_on(GossipGraphPtr graph) { return DecentralizedSgd(IndividualModels::mean, std::move(graph)); }
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

// After each step all models are the mean, as with rounds of one local step.
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

// The distance of all models, as one vector, from their mean.
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

// Without gradients, differences between models shrink by |lambda_2| per exchange once the slowest component dominates.
TEST(GossipOnGraphs, WithoutGradientsModelsComeTogetherAtTheRateOfTheSpectralGap) {
  struct Case {
    GossipGraphPtr graph;
    int from, to;  // numbers of exchanges, whole cycles apart
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

// The weights' columns sum to 1, but their rows do not. After t exchanges worker i's model is row i of the matrix's
// t-th power, divided by this row's sum.
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
  // A step is divided by its worker's push-sum weight, which is 1 in the first step, the only one with a gradient.
  const auto run = run_kicked({.workers = workers, .budget = {.steps = steps}},
                              pushing_on(std::make_shared<WeightedGraph>(workers, links)));
  for (std::size_t i = 0; i < workers; ++i) {
    const double sum = std::accumulate(power[i], power[i] + workers, 0.0);
    for (std::size_t j = 0; j < workers; ++j) EXPECT_NEAR(run.models[i][j], power[i][j] / sum, 1e-6);
  }
  for (const float value : run.outcome.parameters) EXPECT_NEAR(value, 0.25, 1e-6);  // the weighted mean of all models
}

// Links go one way, and change with each step. Worker 3 takes 2 s per step, the others 1 s; messages take 0.5 s. In
// step 2 worker 1 receives from worker 3, which sends its second message at 2 s. In step 3 worker 0 receives from
// worker 3, which sends at 4 s. Workers 0 and 2 reach 3 s without waiting.
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
