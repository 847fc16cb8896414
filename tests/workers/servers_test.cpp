#include <gtest/gtest.h>

#include <vector>

#include "workers/cluster/calls.hpp"

namespace syncopate {
namespace {

std::vector<int> of(Ranks ranks) {
  std::vector<int> values;
  for (const Rank rank : ranks) values.push_back(rank.value);
  return values;
}

TEST(Servers, OneOrSlicesServeAllWorkers) {
  for (const int count : {1, 3}) {
    const Servers servers = count;
    EXPECT_EQ(servers, count);
    EXPECT_EQ(servers.hold_slices(), count > 1);
    for (int server = 4; server < 4 + count; ++server) {
      EXPECT_EQ(of(servers.served_by(Rank{server}, 4)), (std::vector{0, 1, 2, 3}));
      EXPECT_EQ(servers.server_of(Rank{server}, 4), Rank{server}) << "it has no other";
    }
    for (int worker = 0; worker < 4; ++worker) EXPECT_EQ(servers.server_of(Rank{worker}, 4), Rank{4});
  }
  EXPECT_EQ(Servers(1).name_of(Rank{4}, 4), "the server");
  EXPECT_EQ(Servers(3).name_of(Rank{6}, 4), "server 2");
}

TEST(Servers, OfRegionsServeTheirOwnWorkersAndAreServedByTheGlobalOne) {
  const Servers servers = Servers::of_regions(3);
  EXPECT_EQ(servers, 4);
  EXPECT_FALSE(servers.hold_slices());
  EXPECT_EQ(of(servers.served_by(Rank{12}, 12)), (std::vector{13, 14, 15}));
  for (int region = 0; region < 3; ++region) {
    const Rank server{13 + region};
    EXPECT_EQ(of(servers.served_by(server, 12)),
              (std::vector{4 * region, 4 * region + 1, 4 * region + 2, 4 * region + 3}));
    for (const Rank worker : servers.served_by(server, 12)) EXPECT_EQ(servers.server_of(worker, 12), server);
    EXPECT_EQ(servers.server_of(server, 12), Rank{12});
  }
  EXPECT_EQ(servers.server_of(Rank{12}, 12), Rank{12}) << "the global one has no other";
  EXPECT_EQ(servers.name_of(Rank{12}, 12), "the global server");
  EXPECT_EQ(servers.name_of(Rank{14}, 12), "the server of region 1");
}

}  // namespace
}  // namespace syncopate
