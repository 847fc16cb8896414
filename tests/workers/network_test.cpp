// Costs of the network models, compared with formulas and with transfers that are counted one by one.
#include "workers/time/network.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "workers/config/settings.hpp"

namespace syncopate {
namespace {

Duration all_gather(const NetworkModel& network, int members, Bytes payload) {
  return network.collective({.operation = Operation::all_gather, .members = members, .payload = payload});
}

// Schedules: collectives as transfers between ranks, round by round. Their times and bytes are compared with the
// networks' formulas.

// A transfer of parts / N of the payload from one rank to another, with N members. A schedule has a list of transfers
// per round.
struct Transfer {
  int from, to;
  double parts;
};
using Schedule = std::vector<std::vector<Transfer>>;

// Tracks how many parts each rank has, so that a schedule that omits a part is detected.
Schedule gathering_on_tree(int members, bool sums) {
  Schedule schedule;
  std::vector<double> has(static_cast<std::size_t>(members), 1);
  for (int distance = 1; distance < members; distance *= 2) {
    auto& round = schedule.emplace_back();
    for (int rank = distance; rank < members; rank += 2 * distance) {
      auto& parts = has[static_cast<std::size_t>(rank)];
      round.push_back({rank, rank - distance, sums ? members : parts});
      has[static_cast<std::size_t>(rank - distance)] += parts;
      parts = 0;
    }
  }
  EXPECT_EQ(has.front(), members);  // the root has all parts
  return schedule;
}

Schedule broadcast_on_tree(int members) {
  Schedule schedule = gathering_on_tree(members, true);
  std::reverse(schedule.begin(), schedule.end());
  for (auto& round : schedule)
    for (Transfer& transfer : round) std::swap(transfer.from, transfer.to);
  return schedule;
}

Schedule ring(int members, int passes) {
  Schedule schedule(static_cast<std::size_t>(passes * (members - 1)));
  for (auto& round : schedule)
    for (int rank = 0; rank < members; ++rank) round.push_back({rank, (rank + 1) % members, 1});
  return schedule;
}

// In round `distance`, each member sends one part to the member that is `distance` places further on the ring.
Schedule all_to_all_on_ring(int members) {
  Schedule schedule;
  for (int distance = 1; distance < members; ++distance) {
    auto& round = schedule.emplace_back();
    for (int rank = 0; rank < members; ++rank) round.push_back({rank, (rank + distance) % members, 1});
  }
  return schedule;
}

// All-to-all by the binary digits of distances: in the round of a digit, parts whose distance has this digit move on.
// Tracks every part.
Schedule all_to_all_by_digits(int members) {
  struct OnItsWay {
    int at, to, far;
  };
  std::vector<OnItsWay> parts;
  for (int from = 0; from < members; ++from)
    for (int to = 0; to < members; ++to) parts.push_back({from, to, (to - from + members) % members});
  Schedule schedule;
  for (int digit = 1; digit < members; digit *= 2) {
    auto& round = schedule.emplace_back();
    for (int rank = 0; rank < members; ++rank) round.push_back({rank, (rank + digit) % members, 0});
    for (OnItsWay& part : parts) {
      if (!(part.far & digit)) continue;
      ++round[static_cast<std::size_t>(part.at)].parts;
      part.at = (part.at + digit) % members;
    }
  }
  for (const OnItsWay& part : parts) EXPECT_EQ(part.at, part.to);
  return schedule;
}

double seconds(const Schedule& schedule, const Link& link, int members, double payload) {
  double time = 0;
  for (const auto& round : schedule) {
    double slowest = 0;
    for (const Transfer& transfer : round)
      slowest = std::max(slowest, link.latency_s + transfer.parts / members * payload / link.bandwidth_bytes_per_s);
    time += slowest;
  }
  return time;
}

double bytes_moved(const Schedule& schedule, int members, double payload) {
  double bytes = 0;
  for (const auto& round : schedule)
    for (const Transfer& transfer : round) bytes += transfer.parts / members * payload;
  return bytes;
}

Schedule operator+(Schedule a, const Schedule& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr Link us_and_gb{50e-6, 1e9};

constexpr Operation every_operation[] = {Operation::all_reduce, Operation::all_gather, Operation::broadcast,
                                         Operation::all_to_all};

Duration all_to_all(const NetworkModel& network, int members, Bytes payload) {
  return network.collective({.operation = Operation::all_to_all, .members = members, .payload = payload});
}

Duration broadcast(const NetworkModel& network, int members, Bytes payload) {
  return network.collective({.operation = Operation::broadcast, .members = members, .payload = payload});
}

TEST(Network, RingAllReduceCostsTwoPassesOverTheVector) {
  const auto ring = make_ring_network(50e-6, 1e9);
  // 4 workers: 6 rounds of 50 us, and 6/4 of 8 MB at 1 GB/s = 12 ms.
  EXPECT_EQ(ring->all_reduce(4, Bytes{8'000'000}), Duration{300'000 + 12'000'000});
  // 2 workers: 2 rounds of 50 us, and 2/2 of 8 MB = 8 ms.
  EXPECT_EQ(ring->all_reduce(2, Bytes{8'000'000}), Duration{100'000 + 8'000'000});
  EXPECT_EQ(all_gather(*ring, 4, Bytes{8'000'000}), Duration{150'000 + 6'000'000});
  EXPECT_EQ(broadcast(*ring, 5, Bytes{8'000'000}), Duration{3 * (50'000 + 8'000'000)});
}

TEST(Network, RingTransferApproachesTwiceTheVectorAsWorkersGrow) {
  const auto ring = make_ring_network(0, 1e6);
  EXPECT_EQ(ring->all_reduce(1000, Bytes{1'000'000}), Duration{1'998'000'000});
}

// Ideal ring all-reduces of the 86.4 million parameters of SimpleViT-B at 25 Gbit/s, as in the runs of Gu et al. 2024
// (QSR).
TEST(Network, RingTransfersAreThoseOfThePublishedRuns) {
  const auto ring = make_ring_network(0, 25e9 / 8);
  const Bytes parameters{4 * 86'400'000};
  EXPECT_NEAR(to_seconds(ring->all_reduce(16, parameters)), 0.208, 0.001);
  EXPECT_NEAR(to_seconds(ring->all_reduce(64, parameters)), 0.218, 0.001);
}

TEST(Network, MessageOverOneLinkCostsLatencyAndTransfer) {
  const MessageCall call{.from = Rank{0}, .to = Rank{1}, .payload = Bytes{1'000'000}};
  EXPECT_EQ(make_ring_network(50e-6, 1e9)->message(call), Duration{1'050'000});
  EXPECT_EQ(make_tree_network(50e-6, 1e9)->message(call), Duration{1'050'000});
  EXPECT_EQ(make_ring_network(50e-6, inf)->message(call), Duration{50'000});
}

TEST(Network, FixedLatencyIgnoresSizeAndWorkers) {
  const auto fixed = make_fixed_network(0.9);
  for (const int workers : {1, 2, 1000}) {
    EXPECT_EQ(fixed->all_reduce(workers, Bytes{workers}), Duration{900'000'000});
    EXPECT_EQ(broadcast(*fixed, workers, Bytes{workers}), Duration{900'000'000});
  }
  EXPECT_EQ(fixed->message({.payload = Bytes{1 << 30}}), Duration{900'000'000});
  EXPECT_EQ(make_fixed_network(0)->all_reduce(16, Bytes{1 << 30}), Duration{0});
}

TEST(Network, OneWorkerAloneSendsNothing) {
  for (const auto& network :
       {make_ring_network(1, 1), make_tree_network(1, 1),
        make_two_level_network({1, 1}, CollectiveShape::ring, {.workers = 4, .group_size = 2, .uplink = {1, 1}}),
        make_parameter_server_network(1, {1, 1})})
    for (const Operation operation : every_operation)
      EXPECT_EQ(network->collective({.operation = operation, .members = 1, .payload = Bytes{1000}}), Duration{0});
}

TEST(Network, RingAndTreeTakeAndMoveWhatTheirTransfersDo) {
  constexpr Bytes payload{7'207'200};  // divisible by 2 .. 16
  const auto p = static_cast<double>(payload.value());
  const auto tree = make_tree_network(50e-6, 1e9), on_ring = make_ring_network(50e-6, 1e9);
  const auto expect_equal = [](Duration found, double expected_s) {
    EXPECT_NEAR(to_seconds(found), expected_s, 1e-9);  // within a nanosecond
  };
  for (int n = 2; n <= 16; ++n) {
    const Schedule to_root = gathering_on_tree(n, true) + broadcast_on_tree(n);
    const Schedule gathered = gathering_on_tree(n, false) + broadcast_on_tree(n);
    expect_equal(tree->all_reduce(n, payload), seconds(to_root, us_and_gb, n, p));
    expect_equal(all_gather(*tree, n, payload), seconds(gathered, us_and_gb, n, p));
    expect_equal(broadcast(*tree, n, payload), seconds(broadcast_on_tree(n), us_and_gb, n, p));
    expect_equal(on_ring->all_reduce(n, payload), seconds(ring(n, 2), us_and_gb, n, p));
    expect_equal(all_gather(*on_ring, n, payload), seconds(ring(n, 1), us_and_gb, n, p));
    expect_equal(all_to_all(*tree, n, payload), seconds(all_to_all_by_digits(n), us_and_gb, n, p));
    expect_equal(all_to_all(*on_ring, n, payload), seconds(all_to_all_on_ring(n), us_and_gb, n, p));
    EXPECT_NEAR(bytes_moved(all_to_all_on_ring(n), n, p), static_cast<double>(all_gather_bytes(n, payload).value()),
                1e-3);
    for (const Schedule& schedule : {to_root, ring(n, 2)})
      EXPECT_NEAR(bytes_moved(schedule, n, p), static_cast<double>(all_reduce_bytes(n, payload).value()), 1e-3);
    EXPECT_NEAR(bytes_moved(ring(n, 1), n, p), static_cast<double>(all_gather_bytes(n, payload).value()), 1e-3);
    EXPECT_NEAR(bytes_moved(broadcast_on_tree(n), n, p), static_cast<double>(all_gather_bytes(n, payload).value()),
                1e-3);
  }
}

TEST(Network, TwoLevelsReduceInsideExchangeBetweenAndBroadcastInside) {
  constexpr Bytes payload{9'000'000};
  const LinkOptions options{.workers = 12, .group_size = 4, .uplink = {50e-6, 1e9}};
  const auto ring = make_two_level_network({5e-6, 20e9}, CollectiveShape::ring, options),
             tree = make_two_level_network({5e-6, 20e9}, CollectiveShape::tree, options);
  // 12 workers on 3 servers of 4. Inside, 2 rounds up and 2 down, each 5 us + 450 us. Between servers, a ring of 3 has
  // 4 rounds of 50 us and moves 4/3 of 9 ms; a tree of 3 has 4 rounds of 50 us + 9 ms.
  EXPECT_EQ(ring->all_reduce(12, payload), Duration{4 * 455'000 + 4 * 50'000 + 12'000'000});
  EXPECT_EQ(tree->all_reduce(12, payload), Duration{4 * 455'000 + 4 * 9'050'000});
  EXPECT_EQ(broadcast(*ring, 12, payload), Duration{2 * 455'000 + 2 * 9'050'000});
  // All-gather: 3 of 12 parts go up inside, 2 rounds of 4 of 12 parts follow between servers, and all parts go down.
  EXPECT_EQ(all_gather(*ring, 12, payload), Duration{2 * 5'000 + 112'500 + 2 * (50'000 + 3'000'000) + 2 * 455'000});
  // All-to-all: three vectors of 450 us go to each leader. Between servers, 2 rounds move two thirds of the leader's 4
  // vectors: 2/3 x 4 x 9 ms = 24 ms. Then three vectors go from each leader to its members, at the same cost as at
  // first.
  EXPECT_EQ(all_to_all(*ring, 12, payload), Duration{2 * (2 * 5'000 + 1'350'000) + 2 * (50'000 + 12'000'000)});
  // Ranks 4 .. 7 are one whole server. Ranks 2 .. 5 are halves of two servers. Ranks 3 .. 8 are on three servers: 1, 4
  // and 1.
  const auto of = [&](int first, int members) {
    return ring->collective({.members = members, .payload = payload, .first = Rank{first}});
  };
  EXPECT_EQ(of(4, 4), Duration{4 * 455'000});
  EXPECT_EQ(of(2, 4), Duration{2 * 455'000 + 2 * 50'000 + 9'000'000});
  EXPECT_EQ(of(3, 6), Duration{4 * 455'000 + 4 * 50'000 + 12'000'000});

  const auto message = [&](int from, int to) {
    return ring->message({.from = Rank{from}, .to = Rank{to}, .payload = payload});
  };
  EXPECT_EQ(message(4, 7), Duration{455'000});
  EXPECT_EQ(message(3, 4), Duration{9'050'000});
  for (const int server : {12, 13}) {  // parameter servers are in no group of four
    EXPECT_EQ(message(11, server), Duration{9'050'000});
    EXPECT_EQ(message(server, 0), Duration{9'050'000});
  }
  EXPECT_EQ(message(12, 13), Duration{9'050'000});
  // Bytes: each of N - S followers sends to its leader and receives the sum, and S leaders exchange theirs.
  for (const auto& [workers, servers] : {std::pair{12, 3}, {11, 3}, {5, 2}})
    EXPECT_EQ(2 * (workers - servers) * payload.value() + all_reduce_bytes(servers, payload).value(),
              all_reduce_bytes(workers, payload).value());
}

// The test counts, rank by rank, the servers that have members, and the members on the fullest one.
TEST(Network, TwoLevelsWaitForTheServerWithTheMostMembers) {
  constexpr Bytes payload{5'040'000};  // divisible by 1 .. 10
  const auto p = static_cast<double>(payload.value());
  const Link inside{5e-6, 20e9};
  for (const int group_size : {2, 3, 4})
    for (const auto leaders : {CollectiveShape::ring, CollectiveShape::tree}) {
      const auto network =
          make_two_level_network(inside, leaders, {.workers = 10, .group_size = group_size, .uplink = us_and_gb});
      for (int first = 0; first < 10; ++first)
        for (int members = 1; first + members <= 10; ++members) {
          SCOPED_TRACE(testing::Message() << group_size << " per server, " << members << " from " << first << " on");
          std::vector<int> on_server(10);
          for (int rank = first; rank < first + members; ++rank)
            ++on_server[static_cast<std::size_t>(rank / group_size)];
          const int fullest = *std::max_element(on_server.begin(), on_server.end());
          const int servers = static_cast<int>(std::ranges::count_if(on_server, [](int n) { return n > 0; }));
          const double rounds = std::ceil(std::log2(fullest)), up_and_down_s = rounds * (5e-6 + p / 20e9);
          const auto between =
              leaders == CollectiveShape::ring ? make_ring_network(50e-6, 1e9) : make_tree_network(50e-6, 1e9);
          const double gathered_s = rounds * 5e-6 + (fullest - 1.0) / members * p / 20e9 + up_and_down_s;
          const Bytes parts{servers * fullest * payload.value() / members};
          const auto collective_s = [&](Operation operation) {
            return to_seconds(network->collective(
                {.operation = operation, .members = members, .payload = payload, .first = Rank{first}}));
          };
          constexpr double rounding = 2e-9;
          EXPECT_NEAR(collective_s(Operation::all_reduce),
                      2 * up_and_down_s + to_seconds(between->all_reduce(servers, payload)), rounding);
          EXPECT_NEAR(collective_s(Operation::all_to_all),
                      2 * (rounds * 5e-6 + (fullest - 1.0) * p / 20e9) +
                          to_seconds(all_to_all(*between, servers, Bytes{fullest * payload.value()})),
                      rounding);
          EXPECT_NEAR(collective_s(Operation::broadcast),
                      up_and_down_s + to_seconds(broadcast(*between, servers, payload)), rounding);
          EXPECT_NEAR(collective_s(Operation::all_gather),
                      gathered_s + to_seconds(all_gather(*between, servers, parts)), rounding);
        }
    }
}

TEST(Network, AServerOfParametersStandsOnAServerOfItsOwnHoweverFullTheOthersAre) {
  constexpr Bytes payload{1'000'000};
  for (const int workers : {3, 4, 5, 9, 10})
    for (const int group_size : {2, 3, 4}) {
      const auto network = make_two_level_network({0, inf}, CollectiveShape::ring,
                                                  {.workers = workers, .group_size = group_size, .uplink = us_and_gb});
      for (int a = 0; a < workers + 3; ++a)
        for (int b = 0; b < workers + 3; ++b) {
          if (a == b) continue;
          const bool together = (a < workers && b < workers && a / group_size == b / group_size);
          EXPECT_EQ(network->message({.from = Rank{a}, .to = Rank{b}, .payload = payload}),
                    together ? Duration{0} : Duration{1'050'000})
              << a << " and " << b << " of " << workers << " in groups of " << group_size;
        }
    }
}

// Twelve workers on machines of four. Rank 12 is the global server. Ranks from 13 on are the regions' servers.
TEST(Network, ARegionsServerStandsAmongItsWorkersAndTheGlobalOneByItself) {
  constexpr Bytes payload{1'000'000};
  const auto network =
      make_two_level_network({0, inf}, CollectiveShape::ring, {.workers = 12, .group_size = 4, .uplink = us_and_gb});
  for (const int regions : {1, 2, 3, 6, 12}) {
    const int of_region = 12 / regions;
    const auto place = [&](int rank) {
      if (rank < 12) return rank / 4;
      return rank == 12 ? -1 : (rank - 13) * of_region / 4;  // the machine of the region's first worker
    };
    for (int a = 0; a < 13 + regions; ++a)
      for (int b = 0; b < 13 + regions; ++b) {
        if (a == b) continue;
        EXPECT_EQ(network->message({.from = Rank{a}, .to = Rank{b}, .payload = payload, .regions = regions}),
                  place(a) == place(b) ? Duration{0} : Duration{1'050'000})
            << a << " and " << b << " in " << regions << " regions";
      }
    for (int worker = 0; worker < 12 && of_region <= 4; ++worker)
      EXPECT_EQ(place(worker), place(13 + worker / of_region)) << "regions that fit into groups";
  }
}

TEST(Network, ParameterServersCollectivesGoThroughItsLinkTwice) {
  const auto star = make_parameter_server_network(4, us_and_gb);
  constexpr Bytes payload{1'000'000};  // 1 ms on the link
  EXPECT_EQ(star->all_reduce(4, payload), Duration{2 * 50'000 + 8 * 1'000'000});
  EXPECT_EQ(all_gather(*star, 4, payload), Duration{2 * 50'000 + 5 * 1'000'000});
  EXPECT_EQ(broadcast(*star, 4, payload), Duration{2 * 50'000 + 4 * 1'000'000});
  EXPECT_EQ(all_to_all(*star, 4, payload), Duration{2 * 50'000 + 8 * 1'000'000});
  EXPECT_EQ(star->message({.from = Rank{0}, .to = Rank{4}, .payload = payload}), Duration{1'050'000});
  EXPECT_EQ(star->message({.from = Rank{0}, .to = Rank{1}, .payload = payload}), Duration{2'100'000});
}

// The participants whose links a route uses.
std::vector<int> links_of(const Route& route) {
  std::vector<int> links;
  for (const Hop& hop : route) links.push_back(hop.link);
  return links;
}

// With 4 workers and 3 servers, each participant has its own link in each direction. Messages between workers go
// through the first server's link, too.
TEST(Network, EverybodyHasALinkOfItsOwn) {
  const auto star = make_parameter_server_network(4, us_and_gb);
  const auto links = [&](int from, int to) {
    return links_of(star->route(MessageCall{.from = Rank{from}, .to = Rank{to}, .payload = Bytes{8}}));
  };
  const auto out = [](int rank) { return 2 * rank; };
  const auto in = [](int rank) { return 2 * rank + 1; };
  for (int server = 4; server < 7; ++server)
    for (int worker = 0; worker < 4; ++worker) {
      EXPECT_EQ(links(worker, server), (std::vector{out(worker), in(server)}));
      EXPECT_EQ(links(server, worker), (std::vector{out(server), in(worker)}));
    }
  EXPECT_EQ(links(1, 2), (std::vector{out(1), in(4), out(4), in(2)}));
  EXPECT_EQ(links(5, 6), (std::vector{out(5), in(6)}));
  for (const Operation operation : every_operation)
    EXPECT_EQ(links_of(star->route(CollectiveCall{.operation = operation, .members = 3, .first = Rank{1}})),
              (std::vector{in(4), out(4)}));
}

TEST(Network, JitterIsExponentialAndAddsToTheCost) {
  constexpr double jitter = 0.5;
  const auto network = with_jitter(make_fixed_network(1), jitter, 7);
  const auto other_seed = with_jitter(make_fixed_network(1), jitter, 8);
  constexpr int count = 4000;
  std::vector<double> excess;
  int equal = 0;
  for (int i = 0; i < count; ++i) {
    const MessageCall message{.from = Rank{i % 5}, .to = Rank{9}, .number = i / 5};
    excess.push_back((to_seconds(network->message(message)) - 1) / jitter);
    equal += network->message(message) == other_seed->message(message);
    EXPECT_EQ(network->message(message), network->message(message));  // a pure function
  }
  EXPECT_LE(equal, 2);
  // The excess over 1 s in units of the jitter has mean 1 and standard error 1 / sqrt(4000) = 0.016.
  EXPECT_NEAR(std::accumulate(excess.begin(), excess.end(), 0.0) / count, 1, 4 * 0.016);
  // The Kolmogorov-Smirnov distance to 1 - exp(-x) exceeds 1.95 / sqrt(n) once in a thousand times.
  std::sort(excess.begin(), excess.end());
  double distance = 0;
  for (int i = 0; i < count; ++i) {
    const double expected = 1 - std::exp(-excess[static_cast<std::size_t>(i)]);
    distance = std::max({distance, std::abs(expected - static_cast<double>(i) / count),
                         std::abs(expected - static_cast<double>(i + 1) / count)});
  }
  EXPECT_LT(distance, 1.95 / std::sqrt(count));
  // If the call has no number, the cost is the mean.
  EXPECT_EQ(network->all_reduce(3, Bytes{}), from_seconds(1.5));
  EXPECT_EQ(network->message({}), from_seconds(1.5));
  // Collectives have their own draws, by number, first member and size.
  const CollectiveCall call{.members = 4, .first = Rank{0}, .number = 3};
  CollectiveCall next = call, group = call, smaller = call;
  next.number = 4;
  group.first = Rank{4};
  smaller.members = 2;
  for (const CollectiveCall& different : {next, group, smaller})
    EXPECT_NE(network->collective(call), network->collective(different));
}

// Jitter stretches all hops of a message by the same factor: the time on the link and the latency.
TEST(Network, JitterOnSharedLinksStretchesEachHop) {
  const auto star = make_parameter_server_network(4, us_and_gb);
  const auto jittery = with_jitter(make_parameter_server_network(4, us_and_gb), 2, 7);
  constexpr Bytes payload{1'000'000};
  double largest = 1;
  const auto check = [&](const auto& call, Duration plain, Duration stretched) {
    const double times = to_seconds(stretched) / to_seconds(plain);
    const Route before = star->route(call), after = jittery->route(call);
    ASSERT_EQ(after.size(), before.size());
    for (std::size_t i = 0; i < after.size(); ++i) {
      EXPECT_EQ(after[i].link, before[i].link);
      EXPECT_NEAR(to_seconds(after[i].occupied), times * to_seconds(before[i].occupied), 1e-8);
      EXPECT_NEAR(to_seconds(after[i].latency), times * to_seconds(before[i].latency), 1e-8);
    }
    EXPECT_GT(times, 1);
    largest = std::max(largest, times);
  };
  for (int number = 0; number < 20; ++number) {
    const CollectiveCall collective{.members = 4, .payload = payload, .number = number};
    check(collective, star->collective(collective), jittery->collective(collective));
    for (const int to : {2, 4}) {
      const MessageCall message{.from = Rank{1}, .to = Rank{to}, .payload = payload, .number = number};
      check(message, star->message(message), jittery->message(message));
    }
  }
  EXPECT_GT(largest, 3);
}

TEST(Network, SerialLatencyComesOnTopOfCollectivesAlone) {
  const auto network = with_jitter(make_ring_network(1, inf), 0.25, 1, 0.3);
  EXPECT_EQ(network->all_reduce(2, Bytes{100}), from_seconds(2 * 1.25 + 0.3));  // the mean: 1 s x (1 + 0.25) per round
  EXPECT_EQ(network->message({.payload = Bytes{100}}), from_seconds(1.25));
  const auto star = with_jitter(make_parameter_server_network(2, {1, 100}), 0, 0, 0.3);
  EXPECT_EQ(star->all_reduce(2, Bytes{100}), from_seconds(2 * 1 + 4 * 1 + 0.3));
  Duration of_hops{};
  for (const Hop& hop : star->route(CollectiveCall{.members = 2, .payload = Bytes{100}}))
    of_hops += hop.occupied + hop.latency;
  EXPECT_EQ(of_hops, from_seconds(6.3));
  // Serial latency does not change messages, nor their hops. But it is also added to a collective of a single worker.
  const MessageCall message{.from = Rank{0}, .to = Rank{2}, .payload = Bytes{100}};
  EXPECT_EQ(length_of(star->route(message)), from_seconds(2));
  EXPECT_EQ(star->message(message), from_seconds(2));
  for (const NetworkModel* each : {network.get(), star.get()})
    EXPECT_EQ(each->all_reduce(1, Bytes{100}), from_seconds(0.3));
}

TEST(Network, JitterLeavesASerialLatencyAsItIs) {
  const auto network = with_jitter(make_parameter_server_network(2, {1, 100}), 3, 1, 0.3);
  const auto plain = with_jitter(make_parameter_server_network(2, {1, 100}), 3, 1);
  for (int number = 0; number < 5; ++number) {
    const CollectiveCall call{.members = 2, .payload = Bytes{100}, .number = number};
    EXPECT_EQ(network->collective(call), plain->collective(call) + from_seconds(0.3));
    EXPECT_EQ(network->route(call)[0].latency, plain->route(call)[0].latency);
    EXPECT_EQ(network->route(call)[1].latency, plain->route(call)[1].latency + from_seconds(0.3));
  }
}

TEST(Network, BytesOfAnAllReduceAreTwoPassesOfAllButOneWorker) {
  EXPECT_EQ(all_reduce_bytes(4, Bytes{100}), Bytes{600});
  EXPECT_EQ(all_reduce_bytes(1, Bytes{100}), Bytes{0});
}

TEST(Network, NoCostIsLongerThanTheLongestDuration) {
  constexpr int workers = 4;
  const Link slow{.latency_s = 1, .bandwidth_bytes_per_s = 1e-9};
  for (const auto& network :
       {make_ring_network(1, 1e-9), make_tree_network(1, 1e-9), make_parameter_server_network(workers, slow),
        with_jitter(make_parameter_server_network(workers, slow), 0, 0, 1e9),
        with_jitter(make_parameter_server_network(workers, slow), 2, 7)}) {
    EXPECT_EQ(network->all_reduce(workers, Bytes{1'000'000}), longest_duration);
    EXPECT_EQ(network->message({.from = Rank{0}, .to = Rank{1}, .payload = Bytes{1'000'000}}), longest_duration);
  }
}

TEST(Network, RefusesNegativeTimes) {
  EXPECT_THROW(make_fixed_network(-1), std::invalid_argument);
  EXPECT_THROW(with_jitter(make_fixed_network(0), 0, 0, -0.1), std::invalid_argument);
}

using testing::HasSubstr;

struct Read {
  std::unique_ptr<NetworkModel> network;
  std::string faults;
};

Read read(const std::string& toml, std::optional<int> workers = 4) {
  SettingsDocument document(parse_toml(toml, "network.toml"));
  Settings settings = document.root();
  auto network = make_network(settings, {.workers = workers, .seed = 1});
  EXPECT_NE(network, nullptr) << toml;
  return {std::move(network), document.check().report()};
}

const std::string link = "latency_s = 1e-3\nbandwidth_bytes_per_s = 1e6\n";
const std::string two_level =
    "kind = \"two-level\"\ngroup_size = 2\n" + link + "inside = { latency_s = 1e-6, bandwidth_bytes_per_s = 1e9 }\n";

// The expected value is the time of an all-reduce of 1000 bytes among 4 workers, in microseconds.
TEST(NetworkSection, EveryModelReadsItsKeys) {
  const std::map<std::string_view, std::pair<std::string, int>> examples = {
      {"free", {"kind = \"free\"", 0}},
      {"fixed", {"kind = \"fixed\"\nlatency_s = 0.9", 900'000}},
      {"ring", {"kind = \"ring\"\n" + link, 6 * 1000 + 1500}},
      {"tree", {"kind = \"tree\"\n" + link, 4 * 2000}},
      {"two-level", {two_level, 2 * 2 + 2 * 1000 + 1000}},
      {"parameter-server", {"kind = \"parameter-server\"\n" + link, 2 * 1000 + 8 * 1000}},
  };
  ASSERT_EQ(examples.size(), networks().size());
  for (const NetworkRow& row : networks()) {
    EXPECT_FALSE(row.sentence.empty());
    const auto& [toml, microseconds] = examples.at(row.name);
    const Read plain = read(toml);
    EXPECT_EQ(plain.faults, "") << toml;
    EXPECT_EQ(plain.network->all_reduce(4, Bytes{1000}), std::chrono::microseconds(microseconds)) << toml;
    EXPECT_FALSE(plain.network->varies());
    const bool has_links = row.name != "free" && row.name != "fixed";
    EXPECT_EQ(plain.network->has_shared_links(), has_links);
    if (row.name == "free") continue;
    const Read jittery = read("jitter = 0.5\n" + toml);
    EXPECT_EQ(jittery.faults, "") << toml;
    EXPECT_TRUE(jittery.network->varies());
    EXPECT_EQ(jittery.network->all_reduce(4, Bytes{1000}), std::chrono::nanoseconds(1500 * microseconds)) << toml;
    if (row.name == "fixed") continue;
    const Read later = read("serial_s = 2\njitter = 0.5\n" + toml);
    EXPECT_EQ(later.faults, "") << toml;
    EXPECT_EQ(later.network->all_reduce(4, Bytes{1000}), std::chrono::nanoseconds(1500 * microseconds + 2'000'000'000));
    EXPECT_TRUE(later.network->varies()) << toml;
    EXPECT_FALSE(read("serial_s = 2\n" + toml).network->varies()) << toml;
    EXPECT_TRUE(later.network->has_shared_links());
    if (row.name == "parameter-server") continue;
    const Read before = read(toml + "\ncontention = false");
    EXPECT_EQ(before.faults, "") << toml;
    EXPECT_FALSE(before.network->has_shared_links());
    EXPECT_TRUE(before.network->has_unshared_links());
    EXPECT_EQ(before.network->all_reduce(4, Bytes{1000}), plain.network->all_reduce(4, Bytes{1000}));
  }
  const Read tree = read(two_level + "between = \"tree\"");
  EXPECT_EQ(tree.faults, "");
  EXPECT_EQ(tree.network->all_reduce(4, Bytes{1000}), std::chrono::microseconds(2 * 2 + 2 * 2000));
}

Duration message(const NetworkModel& network, int from, int to) {
  return network.message({.from = Rank{from}, .to = Rank{to}, .payload = Bytes{1000}});
}

// Times of 1000 bytes in milliseconds: latency plus bytes / bandwidth. Rank 4 is the server.
TEST(NetworkSection, SingleLinksAreUnlikeTheOthers) {
  using std::chrono::milliseconds;
  const std::string ring = "kind = \"ring\"\n" + link;
  const Read server = read(ring + "server = { bandwidth_bytes_per_s = 1e7 }");
  EXPECT_EQ(server.faults, "");
  EXPECT_EQ(message(*server.network, 0, 4), milliseconds(1 + 1));  // the worker's link is the slower one
  const Read slow_server = read(ring + "server = { latency_s = 3e-3, bandwidth_bytes_per_s = 2e5 }");
  EXPECT_EQ(message(*slow_server.network, 0, 4), milliseconds(3 + 5));
  EXPECT_EQ(message(*slow_server.network, 0, 1), milliseconds(1 + 1));
  const Read slow = read(ring +
                         "[[links]]\nworkers = [1, 3]\nbandwidth_bytes_per_s = 1e5\n"
                         "[[links]]\nworkers = [2]\nlatency_s = 7e-3");
  EXPECT_EQ(slow.faults, "");
  EXPECT_EQ(message(*slow.network, 0, 4), milliseconds(1 + 1));
  EXPECT_EQ(message(*slow.network, 3, 4), milliseconds(1 + 10));
  EXPECT_EQ(message(*slow.network, 4, 2), milliseconds(7 + 1));
  EXPECT_EQ(slow.network->all_reduce(4, Bytes{1000}), milliseconds(6 * 7 + 15));  // the slowest latency and bandwidth
  EXPECT_EQ(slow.network->all_reduce(2, Bytes{1000}), milliseconds(2 * 1 + 10));
  // Racks of two workers. The server is in no rack, and its link is like a worker's.
  const Read racks = read(ring + "racks = { group_size = 2, latency_s = 2e-3, bandwidth_bytes_per_s = 1e5 }");
  EXPECT_EQ(racks.faults, "");
  EXPECT_EQ(message(*racks.network, 0, 1), milliseconds(1 + 1));
  EXPECT_EQ(message(*racks.network, 1, 2), milliseconds(2 + 10));
  EXPECT_EQ(message(*racks.network, 1, 4), milliseconds(2 + 10));
  const Read wide = read(ring + "racks = { group_size = 2, latency_s = 1e-3, bandwidth_bytes_per_s = 1e7 }");
  EXPECT_EQ(message(*wide.network, 1, 4), milliseconds(1 + 1)) << "no wider than a worker's";
  // Two members of a rack have 250 bytes for each of two workers outside: 1000 bytes, which take 10 ms on the uplink.
  const auto all_to_all = [](const NetworkModel& network) {
    return network.collective({.operation = Operation::all_to_all, .members = 4, .payload = Bytes{1000}});
  };
  EXPECT_EQ(all_to_all(*racks.network), milliseconds(3 * 2 + 10));
  EXPECT_EQ(all_to_all(*wide.network), std::chrono::microseconds(3 * 1000 + 750)) << "by the workers' own links";
  EXPECT_EQ(racks.network->all_reduce(2, Bytes{1000}), milliseconds(2 * 1 + 1));
  EXPECT_EQ(racks.network->all_reduce(4, Bytes{1000}), milliseconds(6 * 2 + 15));
}

// A value of a wrong type is reported once, and so is an unknown key.
TEST(NetworkSection, AFaultIsSaidOnce) {
  const auto lines = [](const std::string& toml) {
    const std::string faults = read("kind = \"ring\"\n" + link + toml).faults;
    return std::count(faults.begin(), faults.end(), '\n') + (faults.empty() || faults.ends_with('\n') ? 0 : 1);
  };
  EXPECT_EQ(lines("server = 3"), 1);
  EXPECT_EQ(lines("[[links]]\nworkers = [1]\nbandwith_bytes_per_s = 5"), 1);
}

TEST(NetworkSection, OverlapIsRead) {
  const std::string ring = "kind = \"ring\"\n" + link;
  EXPECT_FALSE(read(ring).network->overlap());
  const Read some = read(ring + "overlap = { buckets = 8 }");
  EXPECT_EQ(some.faults, "");
  ASSERT_TRUE(some.network->overlap());
  EXPECT_EQ(some.network->overlap()->buckets, 8);
  EXPECT_EQ(some.network->overlap()->backward_share, 0.66);
}

TEST(NetworkSection, BadAndContradictorySettingsAreFaultsAtTheirPlace) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"kind = \"ring\"\nlatency_s = -1\nbandwidth_bytes_per_s = 0", "network.toml:2:"},
      {"kind = \"ring\"\nlatency_s = -1\nbandwidth_bytes_per_s = 0", "network.toml:3:"},
      {"kind = \"fixed\"", "latency_s is missing"},
      {"kind = \"fixed\"\nlatency_s = 1\nbandwidth_bytes_per_s = 5", "the cost does not depend on the size"},
      {"kind = \"fixed\"\nlatency_s = 1\nserial_s = 5", "latency_s is this time"},
      {"kind = \"fixed\"\nlatency_s = 1\njitter = -0.1", "jitter"},
      {"kind = \"fixed\"\nlatency_s = 1\njitter = inf", "jitter"},
      {"kind = \"free\"\nlatency_s = 1", "latency_s = 1; must be left out: with kind = \"free\""},
      {"kind = \"free\"\njitter = 1", "must be left out"},
      {"kind = \"rign\"", "ring"},
      {"latency_s = 1", "kind"},
      {"kind = \"tree\"\ngroup_size = 2\n" + link, "group_size"},
      {"kind = \"tree\"\nserial_s = -1\n" + link, "serial_s"},
      {"kind = \"parameter-server\"\nlatency_s = 1", "bandwidth_bytes_per_s is missing"},
      {"kind = \"two-level\"\ngroup_size = 2\n" + link, "inside.latency_s is missing"},
      {two_level + "between = \"star\"", "between"},
      {"kind = \"two-level\"\ngroup_size = 0\n" + link + "inside = { latency_s = 0, bandwidth_bytes_per_s = 1 }",
       "group_size"},
      {"kind = \"two-level\"\ngroup_size = 1\n" + link + "inside = { latency_s = 0, bandwidth_bytes_per_s = 1 }",
       "must be an integer from 2"},
      {"kind = \"ring\"\n" + link + "links = []", "network.toml:4:9: links = []; must have at least one entry"},
      {"kind = \"ring\"\n" + link + "[[links]]\nworkers = [4]\nlatency_s = 0", "network.toml:5:"},
      {"kind = \"ring\"\n" + link + "[[links]]\nworkers = [4]\nlatency_s = 0",
       "links.0.workers = 4; each element must be an integer from 0 to 3"},
      {"kind = \"ring\"\n" + link +
           "[[links]]\nworkers = [1]\nlatency_s = 0\n[[links]]\nworkers = [2, 1]\nlatency_s = 1",
       "network.toml:8:"},
      {"kind = \"ring\"\n" + link +
           "[[links]]\nworkers = [1]\nlatency_s = 0\n[[links]]\nworkers = [2, 1]\nlatency_s = 1",
       "must not name worker 1 again"},
      {"kind = \"ring\"\n" + link + "[[links]]\nworkers = []\nlatency_s = 0", "at least one worker"},
      {"kind = \"ring\"\n" + link + "[[links]]\nworkers = [1]",
       "an entry with `workers` also needs latency_s or bandwidth_bytes_per_s"},
      {"kind = \"ring\"\n" + link + "server = {}", "needs latency_s or bandwidth_bytes_per_s"},
      {"kind = \"ring\"\n" + link + "server = { bandwidth_bytes_per_s = 0 }", "bandwidth_bytes_per_s"},
      {"kind = \"ring\"\n" + link + "racks = { latency_s = 1, bandwidth_bytes_per_s = 1 }", "group_size is missing"},
      {"kind = \"ring\"\n" + link + "racks = { group_size = 2, latency_s = 1 }", "bandwidth_bytes_per_s is missing"},
      {"kind = \"ring\"\n" + link + "racks = { group_size = 4, latency_s = 1, bandwidth_bytes_per_s = 1 }",
       "must be below the number of workers, 4"},
      {"kind = \"ring\"\n" + link + "overlap = { buckets = 0 }", "buckets"},
      {"kind = \"ring\"\n" + link + "overlap = { buckets = 2, backward_share = 1.5 }", "backward_share"},
      {"kind = \"parameter-server\"\n" + link + "server = { latency_s = 1 }", "describe the server's link"},
      {"kind = \"parameter-server\"\n" + link + "contention = false", "the server's link is always shared"},
      {"kind = \"fixed\"\nlatency_s = 1\ncontention = true", "nothing occupies a link"},
      {"kind = \"free\"\nserver = { latency_s = 1 }", "communication takes no time"},
      {two_level + "racks = { group_size = 2, latency_s = 1, bandwidth_bytes_per_s = 1 }",
       "describe the groups' uplinks"},
      {"kind = \"two-level\"\ngroup_size = 4\n" + link + "inside = { latency_s = 0, bandwidth_bytes_per_s = 1 }",
       "must be below the number of workers, 4"},
  };
  for (const auto& [toml, expected] : bad) EXPECT_THAT(read(toml).faults, HasSubstr(expected)) << toml;
  // If the number of workers is unknown, workers and groups are not checked against it.
  EXPECT_EQ(read(two_level, std::nullopt).faults, "");
}

}  // namespace
}  // namespace syncopate
