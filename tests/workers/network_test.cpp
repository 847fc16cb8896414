#include "workers/delays/network.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace syncopate {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

TEST(Network, RingAllReduceCostsTwoPassesOverTheVector) {
  const auto ring = make_ring_network(50e-6, 1e9);
  // 4 workers: 6 rounds of 50 us, and 6/4 of 8 MB at 1 GB/s.
  EXPECT_EQ(ring->all_reduce(4, Bytes{8'000'000}), Duration{300'000 + 12'000'000});
  // 2 workers: 2 rounds, the vector once.
  EXPECT_EQ(ring->all_reduce(2, Bytes{8'000'000}), Duration{100'000 + 8'000'000});
}

TEST(Network, RingOfOneWorkerIsFree) { EXPECT_EQ(make_ring_network(1, 1)->all_reduce(1, Bytes{1000}), Duration{0}); }

TEST(Network, RingTransferApproachesTwiceTheVectorAsWorkersGrow) {
  const auto ring = make_ring_network(0, 1e6);
  EXPECT_EQ(ring->all_reduce(1000, Bytes{1'000'000}), Duration{1'998'000'000});
}

TEST(Network, MessageOverTheRingsLinksCostsLatencyAndTransfer) {
  EXPECT_EQ(make_ring_network(50e-6, 1e9)->message(Bytes{1'000'000}), Duration{1'050'000});
  EXPECT_EQ(make_ring_network(50e-6, inf)->message(Bytes{1'000'000}), Duration{50'000});
}

TEST(Network, FixedLatencyIgnoresSizeAndWorkers) {
  const auto fixed = make_fixed_network(0.9);
  for (const int workers : {1, 2, 1000}) EXPECT_EQ(fixed->all_reduce(workers, Bytes{workers}), Duration{900'000'000});
  EXPECT_EQ(fixed->message(Bytes{1 << 30}), Duration{900'000'000});
  EXPECT_EQ(make_fixed_network(0)->all_reduce(16, Bytes{1 << 30}), Duration{0});
}

TEST(Network, BytesOfAnAllReduceAreTwoPassesOfAllButOneWorker) {
  EXPECT_EQ(all_reduce_bytes(4, Bytes{100}), Bytes{600});
  EXPECT_EQ(all_reduce_bytes(1, Bytes{100}), Bytes{0});
}

TEST(Network, RefusesWhatIsNoLatencyOrBandwidth) {
  EXPECT_THROW(make_fixed_network(-1), std::invalid_argument);
  EXPECT_THROW(make_ring_network(-1, 1), std::invalid_argument);
  EXPECT_THROW(make_ring_network(0, 0), std::invalid_argument);
  EXPECT_THROW(make_ring_network(0, -5), std::invalid_argument);
}

}  // namespace
}  // namespace syncopate
