// Who sends to whom, where workers have no centre.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "algorithms/gossip/graph.hpp"
#include "workers/units/by_rank.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(GossipGraph, NeighboursOnARingAreNamedOnce) {
  EXPECT_THAT(neighbours_on_ring(Rank{0}, 1), IsEmpty());
  EXPECT_THAT(neighbours_on_ring(Rank{1}, 2), ElementsAre(Rank{0}));
  EXPECT_THAT(neighbours_on_ring(Rank{0}, 5), ElementsAre(Rank{4}, Rank{1}));
}

TEST(GossipGraph, InEachStepOfTheExponentialGraphEverybodyReceivesFromOne) {
  for (const int workers : {2, 3, 5, 8, 9}) {
    const ExponentialGraph graph(workers);
    for (Step step{0}; step < 10; ++step) {
      std::set<Rank> receivers;
      for (const Rank sender : Ranks(workers)) {
        const Rank receiver = graph.receiver(sender, step);
        EXPECT_NE(receiver, sender);
        EXPECT_EQ(graph.sender(receiver, step), sender);
        receivers.insert(receiver);
      }
      EXPECT_EQ(static_cast<int>(receivers.size()), workers);
    }
  }
}

TEST(GossipGraph, ReceiversOfTheExponentialGraphArePowersOfTwoAway) {
  EXPECT_THAT(ExponentialGraph(6).receivers(Rank{4}), ElementsAre(Rank{5}, Rank{0}, Rank{2}));
  EXPECT_THAT(ExponentialGraph(8).receivers(Rank{0}), ElementsAre(Rank{1}, Rank{2}, Rank{4}));
}

TEST(GossipGraph, OneWorkerAloneHasNoReceivers) {
  EXPECT_THAT(ExponentialGraph(1).receivers(Rank{0}), IsEmpty());
  EXPECT_EQ(ExponentialGraph(1).receiver(Rank{0}, Step{3}), Rank{0});
}

}  // namespace
}  // namespace syncopate
