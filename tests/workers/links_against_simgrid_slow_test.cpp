// Transfers over shared links, compared with SimGrid, an independent simulator of distributed systems. In SimGrid,
// transfers share a link fairly; here a link serves them one after the other. A link is never idle while there is
// something to send, so the last of equal transfers ends at the same time in both. Earlier transfers end later in
// SimGrid, so the test compares last arrivals.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "workers/simulated/simulated_cluster.hpp"
#include "workers/time/network.hpp"
#ifdef SYNCOPATE_WITH_SIMGRID
#include <simgrid/s4u.hpp>
#endif

namespace syncopate {
namespace {

constexpr Link usual{1e-3, 1e8};
constexpr Link slow{1e-3, 1e7};
constexpr Link uplink{2e-3, 5e7};

struct Transfer {
  int from, to;
  double bytes;
};

// Transfers that begin at the same time. Each participant sends its transfers in this order. Ranks from `workers` on
// are servers.
struct Pattern {
  std::string name;
  int workers, servers;
  std::vector<Transfer> transfers;
  int rack_size = 0;
  std::set<int> slow_ones{};
  int participants() const { return workers + servers; }
};

constexpr double size = 4e6;

[[maybe_unused]] std::vector<Pattern> patterns(int n) {  // unused without SimGrid
  Pattern in{"all to a server", n - 1, 1, {}}, out{"a server to all", n - 1, 1, {}};
  for (int w = 0; w < n - 1; ++w) {
    in.transfers.push_back({w, n - 1, size});
    out.transfers.push_back({n - 1, w, size});
  }
  Pattern ring{"two neighbours", n, 0, {}};
  for (int w = 0; w < n; ++w)
    for (const int way : {n - 1, 1}) ring.transfers.push_back({w, (w + way) % n, size});
  // As in Worker::send_gradient, neighbouring workers begin with different shards.
  constexpr int shards = 2;
  Pattern sharded{"slices to two shards", n - shards, shards, {}};
  for (int w = 0; w < n - shards; ++w)
    for (int i = 0; i < shards; ++i) sharded.transfers.push_back({w, n - shards + (w + i) % shards, size / shards});
  Pattern racks{"from one rack to another", n, 0, {}, n / 2};
  for (int w = 0; w < n / 2; ++w) racks.transfers.push_back({w, w + n / 2, size});
  Pattern unequal = in;
  unequal.name = "one of all with a slow link";
  unequal.slow_ones = {0};
  return {in, out, ring, sharded, racks, unequal};
}

[[maybe_unused]] double last_arrival_s(const Pattern& pattern) {
  LinkOptions options{.workers = pattern.workers};
  for (const int worker : pattern.slow_ones) options.own.push_back({Rank{worker}, slow});
  if (pattern.rack_size > 0) {
    options.group_size = pattern.rack_size;
    options.uplink = uplink;
  }
  const auto network = make_ring_network(usual.latency_s, usual.bandwidth_bytes_per_s, options);
  Executor executor(0);
  Training training(nullptr, make_sgd({}), {}, executor);
  const ComputeTime compute_time(1, 1, {}, {});
  SimulatedCluster cluster({.workers = pattern.workers,
                            .servers = pattern.servers,
                            .compute_time = compute_time,
                            .network = *network,
                            .training = training});
  const Place place{"a call of the test", SourceLine::current()};
  Time last{};
  const auto program = [&](Rank self) {
    std::int64_t expected = 0;
    for (const auto& [from, to, bytes] : pattern.transfers) {
      if (to == self.value) ++expected;
      if (from != self.value) continue;
      const std::vector<double> numbers(static_cast<std::size_t>(bytes / 8));
      cluster.send(self, Rank{to}, Message::note({}, numbers), place);
    }
    while (expected > 0) {
      if (!cluster.receive(self, {}, never, place)) continue;  // a worker has left
      --expected;
      last = std::max(last, cluster.now(self));
    }
  };
  cluster.run(program, program);
  return to_seconds(last);
}

#ifdef SYNCOPATE_WITH_SIMGRID
namespace s4u = simgrid::s4u;

// May run only once per process, because SimGrid has one engine.
double on_simgrid_s(const Pattern& pattern) {
  std::string name = "simgrid";
  std::vector<char*> arguments = {name.data(), nullptr};
  int count = 1;
  s4u::Engine engine(&count, arguments.data());
  // Flows use their links completely, without the cost of TCP's windows and acknowledgements.
  for (const char* setting : {"network/model:CM02", "network/TCP-gamma:1e18", "network/crosstraffic:0"})
    s4u::Engine::set_config(setting);
  auto* const zone = s4u::create_full_zone("cluster");
  std::vector<s4u::Host*> hosts;
  std::vector<s4u::Link*> ways_out, ways_in;
  std::map<int, s4u::Link*> uplinks;  // rack r's upward link has key r, its downward link -1 - r
  const auto link = [&](const std::string& of, double bandwidth, double latency_s) {
    return zone->create_link(of, bandwidth)->set_latency(latency_s)->seal();
  };
  for (int i = 0; i < pattern.participants(); ++i) {
    const auto id = std::to_string(i);
    const double bandwidth = (pattern.slow_ones.contains(i) ? slow : usual).bandwidth_bytes_per_s;
    hosts.push_back(zone->create_host("host" + id, 1e9)->seal());
    ways_out.push_back(link("out" + id, bandwidth, usual.latency_s));
    ways_in.push_back(link("in" + id, bandwidth, 0));
  }
  const auto uplink_of = [&](int index) {
    s4u::Link*& of = uplinks[index];
    if (!of) of = link("uplink" + std::to_string(index), uplink.bandwidth_bytes_per_s, 0);
    return of;
  };
  const auto at = [](auto& list, int index) { return list[static_cast<std::size_t>(index)]; };
  std::set<std::pair<int, int>> routes;
  std::vector<double> arrivals(pattern.transfers.size());
  for (std::size_t i = 0; i < pattern.transfers.size(); ++i) {
    const auto& [from, to, bytes] = pattern.transfers[i];
    if (routes.emplace(from, to).second) {
      std::vector<s4u::LinkInRoute> way = {s4u::LinkInRoute(at(ways_out, from))};
      if (pattern.rack_size > 0 && from / pattern.rack_size != to / pattern.rack_size) {
        way.emplace_back(uplink_of(from / pattern.rack_size));
        way.emplace_back(uplink_of(-1 - to / pattern.rack_size));
      }
      way.emplace_back(at(ways_in, to));
      zone->add_route(at(hosts, from)->get_netpoint(), at(hosts, to)->get_netpoint(), nullptr, nullptr, way, false);
    }
  }
  zone->seal();
  int payload = 0;
  for (std::size_t i = 0; i < pattern.transfers.size(); ++i) {
    auto* const box = s4u::Mailbox::by_name(std::to_string(i));
    const Transfer transfer = pattern.transfers[i];
    s4u::Actor::create("sender", at(hosts, transfer.from),
                       [box, transfer, &payload] { box->put(&payload, static_cast<std::uint64_t>(transfer.bytes)); });
    s4u::Actor::create("receiver", at(hosts, transfer.to), [box, i, &arrivals] {
      box->get<int>();
      arrivals[i] = s4u::Engine::get_clock();
    });
  }
  engine.run();
  return *std::ranges::max_element(arrivals);
}

double in_a_process_of_its_own(const Pattern& pattern) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  std::fflush(stdout);  // so that the child does not print the output again
  const pid_t child = fork();
  if (child == 0) {
    const double last_s = on_simgrid_s(pattern);
    _exit(write(ends[1], &last_s, sizeof last_s) == sizeof last_s ? 0 : 1);
  }
  close(ends[1]);
  double last_s = -1;
  if (read(ends[0], &last_s, sizeof last_s) != sizeof last_s) last_s = -1;
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return last_s;
}

TEST(LinksAgainstSimgrid, LastArrivalsAgree) {
  for (const int n : {4, 8, 16, 64, 256})
    for (const Pattern& pattern : patterns(n)) {
      const double ours_s = last_arrival_s(pattern), theirs_s = in_a_process_of_its_own(pattern);
      // In this program an uplink's larger latency replaces the link's, but SimGrid adds the latencies of all links.
      const double beyond_s = pattern.rack_size > 0 ? uplink.latency_s - usual.latency_s : 0;
      printf("%-30s %3d participants: %.6f s, SimGrid %.6f s, ratio %.4f\n", pattern.name.c_str(), n, ours_s, theirs_s,
             ours_s / theirs_s);
      EXPECT_NEAR(ours_s / (theirs_s + beyond_s), 1, 0.05) << pattern.name << ", " << n;
    }
}
#else
TEST(LinksAgainstSimgrid, LastArrivalsAgree) { GTEST_SKIP() << "SimGrid is not installed (libsimgrid-dev)"; }
#endif

}  // namespace
}  // namespace syncopate
