// Who sends to whom, where workers have no centre, and how fast that makes models alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "algorithms/gossip/graph.hpp"
#include "workers/base/units.hpp"

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

// What a worker sends its receivers take from it, and of each worker's model as much goes out as it takes in of others.
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

// Known in closed form: on a ring (2/3)(1 - cos(2 pi / n)), on a torus a x a (2/5)(1 - cos(2 pi / a)), on a hypercube
// and the exponential graph 2 / (log2 n + 1).
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
    EXPECT_EQ(one_peer_exponential(workers)->spectral_gap(), 1);  // a mean after log2 n exchanges
  }
  EXPECT_LT(one_peer_exponential(12)->spectral_gap(), 1);
}

// The same matrix link by link, whose powers say it.
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
  // Worker 0 gives a half, worker 1 a quarter: of a weight of 2 they have 2/3 and 4/3.
  const WeightedGraph graph(2, {{0, 1, 0.5}, {1, 0, 0.25}});
  EXPECT_NEAR(graph.least_weight(), 2.0 / 3, 1e-8);
  EXPECT_NEAR(graph.least_kept(), 0.5, 1e-12);
  EXPECT_NEAR(graph.second_eigenvalue(), 0.25, 1e-9);  // the trace, 5/4, less the 1
  EXPECT_FALSE(graph.why_not_column_stochastic());
  EXPECT_THAT(*graph.why_not_doubly_stochastic(),
              testing::HasSubstr("worker 0 gives others 0.5 of its model and takes 0.25"));
}

// A star of three: the hub has two neighbours, the others one.
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

}  // namespace
}  // namespace syncopate
