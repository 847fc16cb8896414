// Shared links transfer messages in the order of sending, even if fibers run in another order. On a connection,
// messages do not overtake each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <vector>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/gossip/stochastic_gradient_push.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "workers/simulated/simulated_cluster.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

constexpr double latency_s = 0.25;
constexpr Bytes payload{1000};
constexpr double transfer_s = 1;  // time of the payload on a link: 1000 bytes at 1000 bytes/s
constexpr Link link{latency_s, 1000};

Place here() { return {"a call of the test", SourceLine::current()}; }
Message model() { return {.kind = Message::Kind::model}; }

// Programs on a simulated cluster without a model. A model's parameters have `payload` bytes.
struct Programs {
  int workers = 5;
  int servers = 1;
  std::shared_ptr<const NetworkModel> network = make_parameter_server_network(workers, link);
  std::vector<std::shared_ptr<const DelayProcess>> delays{};

  using Program = std::function<void(Cluster&, Rank)>;
  RunTotals run(const Program& work, const Program& serve = nullptr) const {
    Executor executor(0);
    Training training(nullptr, make_sgd({}), {}, executor);
    training.set_parameter_bytes(payload.value());
    const ComputeTime compute_time(3, 1, {}, delays);
    SimulatedCluster cluster({.workers = workers,
                              .servers = servers,
                              .compute_time = compute_time,
                              .network = *network,
                              .training = training});
    return cluster.run([&](Rank self) { work(cluster, self); },
                       serve ? Cluster::Program([&](Rank self) { serve(cluster, self); }) : nullptr);
  }
};

// The next message. Notices of workers that leave are skipped.
ReceivedMessage next_message(Cluster& cluster, Rank self) {
  while (true)
    if (auto message = cluster.receive(self, {}, never, here())) return message;
}

double now_s(const Cluster& cluster, Rank self) { return to_seconds(cluster.now(self)); }

// On networks of all kinds the server has one link.
TEST(SharedLinks, AllWhoSendAtOnceArriveOneTransferAfterTheOther) {
  const int n = 5;
  const double all_there_s = latency_s + n * transfer_s;
  std::vector<std::shared_ptr<const NetworkModel>> networks;
  networks.push_back(make_parameter_server_network(n, link));
  networks.push_back(make_ring_network(link.latency_s, link.bandwidth_bytes_per_s));
  networks.push_back(make_tree_network(link.latency_s, link.bandwidth_bytes_per_s));
  networks.push_back(
      make_two_level_network({0, 1e12}, CollectiveShape::ring, {.workers = n, .group_size = 2, .uplink = link}));
  for (const auto& network : networks) {
    const Programs setup{.workers = n, .network = network};
    setup.run(
        [&](Cluster& cluster, Rank self) {
          cluster.send(self, cluster.server(), model(), here());
          ASSERT_TRUE(cluster.receive(self, {}, never, here()));
          EXPECT_NEAR(now_s(cluster, self), all_there_s + latency_s + (self.value + 1) * transfer_s, 1e-8);
        },
        [&](Cluster& cluster, Rank self) {
          for (int k = 1; k <= n; ++k) {
            const auto message = cluster.receive(self, {}, never, here());
            ASSERT_TRUE(message);
            // In the network of groups, messages of a group's two members follow each other over the group's uplink.
            // Messages of other groups arrive between them.
            if (network != networks.back()) {
              EXPECT_EQ(message->from, Rank{k - 1});
            }
            EXPECT_NEAR(now_s(cluster, self), latency_s + k * transfer_s, 1e-8);
          }
          for (int w = 0; w < n; ++w) cluster.send(self, Rank{w}, model(), here());
        });
  }
}

// If messages take time, a worker communicates until its gradient has arrived, waits until all gradients have arrived,
// and communicates until it has the model.
TEST(SharedLinks, AQueueInFrontOfThemIsCommunication) {
  const int n = 5;
  const auto programs = [&](std::shared_ptr<const NetworkModel> network) {
    return Programs{.workers = n, .network = std::move(network)}.run(
        [&](Cluster& cluster, Rank self) {
          cluster.send(self, cluster.server(), model(), here());
          ASSERT_TRUE(cluster.receive(self, {}, never, here()));
          // The worker waits for a message that never comes. For part of this time its own message is still on the way.
          cluster.send(self, cluster.server(), model(), here());
          const double until_s = now_s(cluster, self) + 20;
          ASSERT_FALSE(cluster.receive(self, {}, start_time + from_seconds(until_s), here()));
        },
        [&](Cluster& cluster, Rank self) {
          for (int k = 1; k <= n; ++k) ASSERT_TRUE(cluster.receive(self, {}, never, here()));
          for (int w = 0; w < n; ++w) cluster.send(self, Rank{w}, model(), here());
          while (cluster.workers_left(self) > 0) cluster.receive(self, {}, never, here());
        });
  };
  const RunTotals shared = programs(make_ring_network(latency_s, 1000));
  const RunTotals alone = programs(make_ring_network(latency_s, 1000, {.contention = false}));
  const RunTotals fixed = programs(make_fixed_network(latency_s));
  for (int w = 0; w < n; ++w) {
    SCOPED_TRACE(w);
    const auto at = static_cast<std::size_t>(w);
    const auto seconds_of = [&](const RunTotals& totals, Activity activity) {
      return to_seconds(start_time + totals.accounts[at][activity]);
    };
    // A worker's gradient, the model, and its second message, which meets a link that is free of others' messages.
    const double messages_s = 3 * latency_s + (w + 1) * transfer_s + (w + 1) * transfer_s + transfer_s;
    EXPECT_NEAR(seconds_of(shared, Activity::communicate), messages_s, 1e-8);
    EXPECT_NEAR(seconds_of(alone, Activity::communicate), 3 * (latency_s + transfer_s), 1e-8);
    EXPECT_NEAR(seconds_of(fixed, Activity::communicate), 3 * latency_s, 1e-8);
    // The worker waits until the last worker's gradient has arrived.
    EXPECT_GE(seconds_of(shared, Activity::wait), (n - 1 - w) * transfer_s - 1e-8);
    EXPECT_EQ(seconds_of(shared, Activity::compute), 0);
  }
}

// A model that is sent only for the result takes no transfer, but does not overtake earlier messages.
TEST(SharedLinks, CarryModelsForTheResultAloneWithoutATransfer) {
  const int n = 4;
  const Programs setup{.workers = n, .servers = 0, .network = make_ring_network(latency_s, 1000)};
  const RunTotals totals = setup.run([&](Cluster& cluster, Rank self) {
    if (self != Rank{0}) {
      if (self == Rank{1}) cluster.send(self, Rank{0}, model(), here());
      cluster.send(self, Rank{0}, Message::of_last_model(Step{1}, nullptr), here());
      return;
    }
    std::vector<int> from;
    while (const auto message = cluster.receive(self, {}, never, here())) {
      from.push_back(message->from.value);
      // Messages that arrive while the first one is on the link wait for it.
      EXPECT_DOUBLE_EQ(now_s(cluster, self), latency_s + transfer_s);
    }
    EXPECT_EQ(from.size(), 4u);
    EXPECT_EQ(from.front(), 1);
  });
  EXPECT_EQ(totals.bytes, Bytes{4 * payload.value()});
}

// Without contention, other messages do not change a message's time.
TEST(SharedLinks, AreNotSharedWithoutContention) {
  Programs setup;
  setup.network = make_ring_network(latency_s, 1000, {.contention = false});
  setup.run(
      [&](Cluster& cluster, Rank self) {
        cluster.send(self, cluster.server(), model(), here());
        ASSERT_TRUE(cluster.receive(self, {}, never, here()));
        EXPECT_DOUBLE_EQ(now_s(cluster, self), 2 * (latency_s + transfer_s));
      },
      [&](Cluster& cluster, Rank self) {
        for (int k = 0; k < setup.workers; ++k) ASSERT_TRUE(cluster.receive(self, {}, never, here()));
        EXPECT_DOUBLE_EQ(now_s(cluster, self), latency_s + transfer_s);
        for (int w = 0; w < setup.workers; ++w) cluster.send(self, Rank{w}, model(), here());
      });
}

// Each worker sends to both neighbours at once. Its second message leaves after its first one. The receiver gets this
// second message after the first message of its other neighbour.
TEST(SharedLinks, TwoNeighboursTakeTwoTransfers) {
  const int n = 6;
  const Programs setup{.workers = n, .servers = 0, .network = make_ring_network(latency_s, 1000)};
  setup.run([&](Cluster& cluster, Rank self) {
    for (const int way : {n - 1, 1}) cluster.send(self, Rank{(self.value + way) % n}, model(), here());
    for (int k = 1; k <= 2; ++k) {
      ASSERT_TRUE(cluster.receive(self, {}, never, here()));
      EXPECT_DOUBLE_EQ(now_s(cluster, self), latency_s + k * transfer_s);
    }
  });
}

// One rack sends to another. The uplink carries one transfer after the other, more slowly than a worker's own link. For
// messages within the rack the uplink does not matter.
TEST(SharedLinks, OfRacksCarryAllThatGoesBetweenThem) {
  const int size = 3;
  const double uplink_s = 2;  // time of the payload on the uplink
  const LinkOptions racks{.group_size = size, .uplink = {0.5, 1000 / uplink_s}};
  const Programs setup{.workers = 2 * size, .servers = 0, .network = make_ring_network(latency_s, 1000, racks)};
  setup.run([&](Cluster& cluster, Rank self) {
    if (self.value < size) {
      cluster.send(self, Rank{self.value + size}, model(), here());
      return;
    }
    ASSERT_TRUE(cluster.receive(self, {}, never, here()));
    EXPECT_DOUBLE_EQ(now_s(cluster, self), 0.5 + (self.value - size + 1) * uplink_s);
    const double begin_s = 100;
    cluster.receive(self, {}, start_time + from_seconds(begin_s), here());
    cluster.send(self, Rank{size + (self.value - size + 1) % size}, model(), here());
    ASSERT_TRUE(cluster.receive(self, {}, never, here()));
    EXPECT_DOUBLE_EQ(now_s(cluster, self), begin_s + latency_s + transfer_s);
  });
}

// A slow message from one worker does not delay others' messages. A collective is as slow as the slowest link.
TEST(SharedLinks, OfASlowWorkerAreSlowForItAlone) {
  const int n = 4;
  const LinkOptions options{.own = {{Rank{1}, {latency_s, 100}}}};
  const Programs setup{.workers = n, .network = make_ring_network(latency_s, 1000, options)};
  setup.run(
      [&](Cluster& cluster, Rank self) {
        cluster.send(self, cluster.server(), model(), here());
        ModelStatePtr none;
        cluster.average(self, none, {}, {}, here());
        // The collective begins at 10 s, when worker 1's outgoing link is free.
        EXPECT_DOUBLE_EQ(now_s(cluster, self), 10 + 6 * latency_s + 1.5 * 10);
      },
      [&](Cluster& cluster, Rank self) {
        std::vector<std::pair<int, double>> arrived;
        for (int k = 0; k < n; ++k) {
          const auto message = cluster.receive(self, {}, never, here());
          ASSERT_TRUE(message);
          arrived.emplace_back(message->from.value, now_s(cluster, self));
        }
        // Worker 1's message is second at the server's link, and occupies it for 1 s before the next two.
        const std::vector<std::pair<int, double>> expected = {
            {0, latency_s + 1}, {2, latency_s + 3}, {3, latency_s + 4}, {1, latency_s + 10}};
        EXPECT_EQ(arrived, expected);
      });
}

// A collective occupies its members' links for its transfers, not for latencies, and waits for messages on them.
TEST(SharedLinks, CollectivesAndMessagesWaitForEachOther) {
  const double transfers_s = 1, latencies_s = 2 * latency_s;  // times of an all-reduce of two workers
  const auto run = [&](double message_at_s, double collective_at_s, double message_s, double collective_s) {
    const Programs setup{.workers = 2, .network = make_ring_network(latency_s, 1000)};
    setup.run(
        [&](Cluster& cluster, Rank self) {
          cluster.receive(self, {}, start_time + from_seconds(collective_at_s), here());
          ModelStatePtr none;
          cluster.average(self, none, {}, {}, here());
          EXPECT_DOUBLE_EQ(now_s(cluster, self), collective_s);
          if (self.value > 0) return;
          ASSERT_TRUE(cluster.receive(self, {}, never, here()));
          EXPECT_DOUBLE_EQ(now_s(cluster, self), std::max(message_s, collective_s));
        },
        [&](Cluster& cluster, Rank self) {
          cluster.receive(self, {}, start_time + from_seconds(message_at_s), here());
          cluster.send(self, Rank{0}, model(), here());
        });
  };
  // The message is on worker 0's incoming link during [10.25, 11.25]. So the collective begins at 11.25.
  run(10, 11, 11.25, 11.25 + transfers_s + latencies_s);
  // The collective is on the links during [10, 11]. The message would come at 10.75 and waits until 11.
  run(10.5, 10, 12, 10 + transfers_s + latencies_s);
}

// A worker sends while its own collective is in progress. Its link serves the message and the collective in the order
// of time.
TEST(SharedLinks, WhatIsSentBesideACollectiveComesToTheLinkInTheOrderOfTime) {
  const auto run = [&](double send_at_s, double arrives_s, double ends_s) {
    const Programs setup{.workers = 2, .network = make_ring_network(latency_s, 1000)};
    setup.run(
        [&](Cluster& cluster, Rank self) {
          if (self.value == 1) cluster.receive(self, {}, start_time + from_seconds(10), here());
          auto started = cluster.start(self, Collective::average(nullptr, {}), {}, here());
          if (self.value == 0) {
            cluster.receive(self, {}, start_time + from_seconds(send_at_s), here());
            cluster.send(self, cluster.server(), model(), here());
          }
          cluster.finish(self, std::move(started), here());
          EXPECT_DOUBLE_EQ(now_s(cluster, self), ends_s);
        },
        [&](Cluster& cluster, Rank self) {
          next_message(cluster, self);
          EXPECT_DOUBLE_EQ(now_s(cluster, self), arrives_s);
          while (cluster.workers_left(self) > 0)
            cluster.receive(self, {}, never, here());  // others may still wait for it
        });
  };
  run(3, 4.25, 11.5);      // long before the last worker arrives at 10
  run(9.5, 10.75, 12);     // the collective waits until 10.5, when the message leaves the outgoing link
  run(10.5, 12.25, 11.5);  // the message waits until 11 for the collective's transfer
}

// Each of N gradients has S slices, sent in rotated order. So all servers' links are busy from first to last slice.
TEST(SharedLinks, OfShardsCarrySlicesSideBySide) {
  const int n = 6, shards = 3;
  const double slice_s = transfer_s / shards;
  Programs setup{.workers = n, .servers = shards, .network = make_ring_network(latency_s, 1000)};
  setup.run(
      [&](Cluster& cluster, Rank self) {
        for (int k = 0; k < shards; ++k) {
          const int shard = (self.value + k) % shards;
          Message message = model();
          message.slice = {shard, shards};
          cluster.send(self, cluster.server(shard), std::move(message), here());
        }
      },
      [&](Cluster& cluster, Rank self) {
        for (int k = 1; k <= n; ++k) {
          next_message(cluster, self);
          EXPECT_NEAR(now_s(cluster, self), latency_s + k * slice_s, 0.02);  // bytes are whole numbers
        }
      });
}

// A worker's messages to three servers wait for each other only on its outgoing link: the message to server s follows s
// others. Messages from servers to a worker wait for each other only on its incoming link.
TEST(SharedLinks, OfSeveralServersServeSideBySide) {
  Programs setup;
  setup.servers = 3;
  const int n = setup.workers;
  const double all_there_s = latency_s + n * transfer_s;  // when all messages have arrived at the first server
  setup.run(
      [&](Cluster& cluster, Rank self) {
        for (int s = 0; s < 3; ++s) cluster.send(self, cluster.server(s), model(), here());
        for (int s = 0; s < 3; ++s) {
          ASSERT_TRUE(cluster.receive(self, {}, never, here()));
          EXPECT_DOUBLE_EQ(now_s(cluster, self),
                           all_there_s + s * transfer_s + latency_s + (self.value + 1) * transfer_s);
        }
      },
      [&](Cluster& cluster, Rank self) {
        const int s = self.value - n;
        for (int k = 1; k <= n; ++k) {
          ASSERT_TRUE(cluster.receive(self, {}, never, here()));
          EXPECT_DOUBLE_EQ(now_s(cluster, self), latency_s + (s + k) * transfer_s);
        }
        for (int w = 0; w < n; ++w) cluster.send(self, Rank{w}, model(), here());
      });
}

struct Sent {
  double at_s;
  int from;
  int number;
  auto operator<=>(const Sent&) const = default;
};

// A worker's fiber makes all its sends before the next fiber runs. Arrivals follow the recursion end(k) = max(sent(k),
// end(k - 1)) + transfer over messages in the order of sending.
TEST(SharedLinks, ServeInTheOrderOfSendingWhicheverFiberRunsFirst) {
  constexpr int messages = 30;
  const Programs setup{
      .delays = {exponential_delay(4)}};  // each of 5 workers sends every 5 s: the link is near its limit
  std::vector<Sent> sent;
  std::vector<std::tuple<int, int, double>> arrived;
  const RunTotals totals = setup.run(
      [&](Cluster& cluster, Rank self) {
        for (int i = 0; i < messages; ++i) {
          cluster.compute_gradient(self, nullptr, {self, i, 0}, {self, i, 0}, {});
          Message message = model();
          message.step = i;
          sent.push_back({now_s(cluster, self), self.value, i});
          cluster.send(self, cluster.server(), std::move(message), here());
        }  // leaves while its last messages wait for the link
      },
      [&](Cluster& cluster, Rank self) {
        while (true) {
          const auto message = cluster.receive(self, {}, never, here());
          if (message)
            arrived.emplace_back(message->from.value, static_cast<int>(message->step.value()), now_s(cluster, self));
          else if (cluster.workers_left(self) == 0)
            break;
        }
      });
  ASSERT_EQ(arrived.size(), sent.size());
  EXPECT_EQ(totals.messages, 5 * messages);
  EXPECT_EQ(totals.bytes, Bytes{5 * messages * payload.value()});
  std::sort(sent.begin(), sent.end());
  double end_s = 0, waited_s = 0;
  for (std::size_t k = 0; k < sent.size(); ++k) {
    const double begin_s = std::max(sent[k].at_s, end_s);
    waited_s += begin_s - sent[k].at_s;
    end_s = begin_s + transfer_s;
    EXPECT_EQ(std::get<0>(arrived[k]), sent[k].from);
    EXPECT_EQ(std::get<1>(arrived[k]), sent[k].number);
    EXPECT_NEAR(std::get<2>(arrived[k]), end_s + latency_s, 1e-8);
    if (k > 0) {  // at most one message per transfer time
      EXPECT_GE(std::get<2>(arrived[k]) - std::get<2>(arrived[k - 1]), transfer_s - 1e-8);
    }
  }
  EXPECT_GT(waited_s, 10 * transfer_s);  // so messages did wait
}

TEST(SharedLinks, CarryMessagesBetweenWorkersInAndOut) {
  const Programs setup{.workers = 4, .servers = 0, .network = make_parameter_server_network(4, link)};
  setup.run([&](Cluster& cluster, Rank self) {
    if (self.value < 2) {
      cluster.send(self, Rank{self.value + 2}, model(), here());
      cluster.send(self, Rank{self.value + 2}, {}, here());  // no values, sent directly after the model
      return;
    }
    // The models are on the server's incoming link during [0.25, 1.25] and [1.25, 2.25], then on its outgoing link.
    const double arrival_s = self.value == 2 ? 2.5 : 3.5;
    const auto first = cluster.receive(self, {}, never, here());
    ASSERT_TRUE(first);
    EXPECT_EQ(first->kind, Message::Kind::model);
    EXPECT_DOUBLE_EQ(now_s(cluster, self), arrival_s);
    ASSERT_TRUE(cluster.receive(self, {}, never, here()));
    EXPECT_LE(now_s(cluster, self), 3.5);  // it takes no time, but does not overtake earlier ones
  });
}

TEST(SharedLinks, GroupsAverageOneAfterTheOther) {
  const Programs setup{.workers = 4, .servers = 0, .network = make_parameter_server_network(4, link)};
  setup.run([&](Cluster& cluster, Rank self) {
    ModelStatePtr none;
    cluster.average(self, none, {.group_size = 2}, {}, here());
    // The groups are on the incoming link during [0, 2] and [2, 4], on the outgoing one in [2.25, 4.25], [4.25, 6.25].
    EXPECT_DOUBLE_EQ(now_s(cluster, self), self.value < 2 ? 4.5 : 6.5);
    cluster.average(self, none, {}, {}, here());
    EXPECT_DOUBLE_EQ(now_s(cluster, self), 6.5 + 2 * (4 * transfer_s + latency_s));
  });
}

// Costs vary up to many times the mean, but what was sent first arrives first. The last message also arrives before the
// notice that its sender has left.
TEST(SharedLinks, NothingOvertakesOnAConnectionHoweverCostsVary) {
  constexpr int messages = 300;
  for (const int kind : {0, 1, 2}) {
    auto network = kind == 0   ? make_parameter_server_network(2, {1, 1e4})
                   : kind == 1 ? make_ring_network(1, 1e4)
                               : make_ring_network(1, 1e4, {.contention = false});
    const Programs setup{.workers = 2, .servers = 0, .network = with_jitter(std::move(network), 20, 5)};
    int out_of_turn = 0;
    setup.run([&](Cluster& cluster, Rank self) {
      if (self.value == 0) {
        for (int i = 0; i < messages; ++i) {
          Message message = i % 3 == 0 ? Message{} : model();
          message.step = i;
          cluster.compute_gradient(self, nullptr, {self, i, 0}, {self, i, 0}, {});
          cluster.send(self, Rank{1}, std::move(message), here());
        }
        return;
      }
      Time before{};
      int together = 0;
      for (int i = 0; i < messages; ++i) {
        const auto message = cluster.receive(self, Rank{0}, never, here());
        ASSERT_TRUE(message) << i;
        out_of_turn += message->step != Step{i};
        together += std::exchange(before, cluster.now(self)) == before;
      }
      EXPECT_GT(together, messages / 10);  // without this rule, these would have overtaken others
      EXPECT_FALSE(cluster.receive(self, Rank{0}, never, here()));
    });
    EXPECT_EQ(out_of_turn, 0);
  }
}

// s is the time of a transfer, c of a gradient, and L the latency. If N s > c + 2 L + 2 s, the server's outgoing link
// is always busy. So model j reaches its worker at j s + L, and gradient j the server at (j + 1) s + 2 L + c. Gradients
// arrive at the rate bandwidth / bytes, whatever c is. The last N - 1 models would arrive after the server has ended,
// so they do not matter.
TEST(SharedLinks, BoundAsynchronousSgdByTheirBandwidth) {
  constexpr double s = 0.5, L = 0.25, c = 1;
  constexpr int n = 8;
  SimulatedRun setup{
      .workers = n, .base_s = c, .network = make_parameter_server_network(n, {L, 16 / s}), .objective = nullptr};
  for (const int steps : {1, 2, 10, 60}) {
    setup.budget = {.steps = steps};
    const auto outcome = setup.run(AsyncSgd({}));
    const int gradients = n * steps;
    EXPECT_NEAR(to_seconds(outcome.rounds.back().end), (gradients + 1) * s + 2 * L + c, 1e-9);
    EXPECT_EQ(outcome.totals.end, outcome.rounds.back().end);
    expect_exact_accounts(outcome);
  }
  // If N s < c + 2 L + 2 s, nobody waits for the link except at the start, and a worker's gradients arrive every c + 2
  // L + 2 s.
  constexpr double shorter = 0.125;
  setup.workers = 4;
  setup.network = make_parameter_server_network(4, {L, 16 / shorter});
  setup.budget = {.steps = 20};
  EXPECT_NEAR(to_seconds(setup.run(AsyncSgd({})).rounds.back().end),
              4 * shorter + shorter + 2 * L + c + 19 * (c + 2 * L + 2 * shorter), 1e-9);
}

// A run with a limit on time ends with its servers' first event after this limit, however many models are queued on
// outgoing links. The same holds for slices of a model that servers send only for the result.
TEST(SharedLinks, DoNotHoldUpTheEndOfARun) {
  constexpr double s = 0.5, L = 0.25, c = 1, seconds = 10.1;
  constexpr int n = 64;
  SimulatedRun setup{.workers = n,
                     .base_s = c,
                     .network = make_ring_network(L, 16 / s),
                     .budget = {.seconds = seconds},
                     .objective = nullptr};
  const auto whole = setup.run(AsyncSgd({}));
  // Gradient j arrives at (j + 1) s + 2 L + c.
  const double next_s = 2 * L + c + std::ceil((seconds - 2 * L - c) / s) * s;
  EXPECT_NEAR(to_seconds(whole.totals.end), next_s, 1e-9);
  expect_exact_accounts(whole);
  // With a quorum of one, other workers' slices of the new model are queued when the last step is made. Server k gets
  // the slice for the last step k - 1 slice transfers later than the first server.
  setup.budget = {.steps = 2};
  for (const int servers : {2, 4}) {
    const auto sliced = setup.run(BackupWorkers(1, {.servers = servers}));
    const double after_the_first_s = to_seconds(start_time + (sliced.totals.end - sliced.rounds.back().end));
    EXPECT_LE(after_the_first_s, (servers - 1) * s / servers + 1e-9) << servers;
    expect_exact_accounts(sliced);
  }
}

// With a server, worker N starts N s after the step's beginning, and its gradient follows all others: a step takes c +
// 2 L + (N + 1) s. An all-reduce waits for the last worker in both directions: c + 2 L + 2 N s.
TEST(SharedLinks, GiveSynchronousStepsAClosedForm) {
  constexpr double s = 0.5, L = 0.25, c = 3;
  constexpr int n = 6, steps = 7;
  const SimulatedRun setup{
      .workers = n, .base_s = c, .network = make_parameter_server_network(n, {L, 16 / s}), .budget = {.steps = steps}};
  const auto served = setup.run(BackupWorkers(n)), reduced = setup.run(SyncSgd());
  EXPECT_NEAR(to_seconds(served.totals.end), steps * (c + 2 * L + (n + 1) * s), 1e-9);
  EXPECT_NEAR(to_seconds(reduced.totals.end), steps * (c + 2 * L + 2 * n * s), 1e-9);
  EXPECT_EQ(served.parameters, reduced.parameters);
  expect_exact_accounts(served);
  expect_exact_accounts(reduced);
  // With jitter, parameters still do not depend on the times of messages, and collectives take different times.
  SimulatedRun jittery = setup;
  jittery.network = with_jitter(make_parameter_server_network(n, {L, 16 / s}), 2, 1);
  const auto late = jittery.run(BackupWorkers(n)), longer = jittery.run(SyncSgd());
  EXPECT_EQ(late.parameters, served.parameters);
  EXPECT_EQ(longer.parameters, served.parameters);
  EXPECT_GT(longer.totals.end, reduced.totals.end);
  EXPECT_NE(longer.rounds[0].duration, longer.rounds[1].duration);
  expect_exact_accounts(late);
  // In gossip, messages are used in an order that does not depend on their times.
  const auto pushed = setup.run(StochasticGradientPush());
  EXPECT_EQ(jittery.run(StochasticGradientPush()).parameters, pushed.parameters);
}

}  // namespace
}  // namespace syncopate
