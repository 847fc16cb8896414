// Promises of the simulated cluster alone: events in the order of virtual time, explained deadlocks, exact accounts.
// cluster_contract.hpp tests the promises of both clusters.
#include "workers/simulated/simulated_cluster.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/script.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/base/process.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

// The number of workers in tests that need more workers than there are stacks with guard pages (1,024).

#if defined(__SANITIZE_THREAD__)
// ThreadSanitizer treats a fiber as a thread. It allows at most 8,128 threads, and needs a megabyte for each.
constexpr int many_fibers = 2'000;
#else
constexpr int many_fibers = 20'000;
#endif

void compute(Worker& worker, int micro_batches) {
  for (int i = 0; i < micro_batches; ++i) worker.compute_gradient();
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(SimulatedCluster, MessagesArriveInVirtualTimeNotInTheOrderOfExecution) {
  // Worker 0's fiber runs ahead to 9 s, before worker 1's fiber sends at 2 s and worker 2's at 1 s.
  std::vector<std::string> log;
  const SimulatedRun setup{};
  setup.run(Script([&](Worker& worker) {
    if (worker.rank() == Rank{0}) {
      compute(worker, 9);
      while (const auto message = worker.receive({.until = worker.now()}))
        log.push_back(fmt::format("{} at {:.1f} s", message->from.value, to_seconds(worker.now())));
      return;
    }
    compute(worker, 3 - worker.rank().value);
    worker.send(Rank{0}, {});
    compute(worker, 10);
    worker.send(Rank{0}, {});  // arrives at 11.5 s or later, so worker 0 does not see it at 9 s
  }));
  EXPECT_EQ(log, (std::vector<std::string>{"2 at 9.0 s", "1 at 9.0 s"}));
}

TEST(SimulatedCluster, AReceiverWaitsUntilTheMessageArrives) {
  const SimulatedRun setup{.workers = 2};
  const auto outcome = setup.run(Script([&](Worker& worker) {
    if (worker.rank() == Rank{0}) {
      EXPECT_FALSE(worker.receive({.until = start_time + from_seconds(2.0)}));
      EXPECT_EQ(worker.now(), start_time + from_seconds(2.0));
      EXPECT_TRUE(worker.receive({.until = start_time + from_seconds(4.0)}));
      EXPECT_EQ(worker.now(), start_time + from_seconds(3.5));
      EXPECT_FALSE(worker.receive());  // no worker is left that could send
    } else {
      compute(worker, 3);
      worker.send(Rank{0}, {});
    }
  }));
  const Account& receiver = outcome.totals.accounts[0];
  EXPECT_EQ(receiver[Activity::wait], from_seconds(3.0));
  EXPECT_EQ(receiver[Activity::communicate], from_seconds(0.5));
}

// A model of 16 bytes takes 2 s, a message without values 1 s. If the message is sent after the model, both arrive
// together.
TEST(SimulatedCluster, AMessageWithoutValuesDoesNotOvertakeAModel) {
  std::vector<std::string> log;
  const std::shared_ptr<const NetworkModel> network = make_ring_network(1, 16);
  const SimulatedRun setup{.workers = 2, .network = network};
  setup.run(Script([&](Worker& worker) {
    if (worker.rank() == Rank{1}) {
      worker.send(Rank{0}, {.model = worker.model(), .kind = Message::Kind::model});
      worker.send(Rank{0}, {});
      return;
    }
    while (const auto message = worker.receive())
      log.push_back(fmt::format("{} at {:.1f} s", message->has_model() ? "model" : "empty", to_seconds(worker.now())));
  }));
  EXPECT_EQ(log, (std::vector<std::string>{"model at 2.0 s", "empty at 2.0 s"}));
}

// Worker 0 wants a message from worker 1, which has left. Worker 2 continues long after that.
TEST(SimulatedCluster, WhoWaitsForOneWorkerLearnsThatItHasLeft) {
  std::vector<std::string> log;
  const SimulatedRun setup{};
  setup.run(Script([&](Worker& worker) {
    if (worker.rank() == Rank{2}) return compute(worker, 9);
    if (worker.rank() == Rank{1}) {
      compute(worker, 2);
      worker.send(Rank{0}, {});
      return;
    }
    while (worker.receive({.from = Rank{1}}))
      log.push_back(fmt::format("message at {:.1f} s", to_seconds(worker.now())));
    log.push_back(fmt::format("end at {:.1f} s", to_seconds(worker.now())));
  }));
  EXPECT_EQ(log, (std::vector<std::string>{"message at 2.5 s", "end at 2.5 s"}));
}

TEST(SimulatedCluster, EqualTimesAreOrderedByNumber) {
  std::vector<int> order;
  const SimulatedRun setup{.workers = 6};
  setup.run(Script([&](Worker& worker) {
    if (worker.rank() != Rank{5}) return worker.send(Rank{5}, {});
    for (int i = 0; i < 5; ++i) order.push_back(worker.receive()->from.value);
  }));
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(SimulatedCluster, ADeadlockNamesEveryWorkerAndWhatItWaitsFor) {
  const SimulatedRun setup{.workers = 6};
  const std::string text = message_of([&] {
    setup.run(Script([](Worker& worker) {
      if (worker.rank() == Rank{2} || worker.rank() == Rank{4}) {
        worker.receive();
        return;
      }
      worker.barrier();
    }));
  });
  EXPECT_THAT(text, testing::StartsWith("deadlock at 0.000000 s"));
  EXPECT_THAT(text, testing::HasSubstr("workers 0-1, 3, 5: waiting in barrier (workers/simulated_cluster_test.cpp:"));
  EXPECT_THAT(text, testing::HasSubstr("workers 2, 4: waiting in receive (workers/simulated_cluster_test.cpp:"));
}

TEST(SimulatedCluster, ACollectiveWithoutAWorkerThatHasLeftSaysSo) {
  const SimulatedRun setup{.workers = 3, .base_s = 2.5};
  for (const bool leaves_first : {false, true}) {
    const std::string text = message_of([&] {
      setup.run(Script([&](Worker& worker) {
        if (leaves_first == (worker.rank() == Rank{1})) worker.compute_gradient();
        if (worker.rank() != Rank{1}) worker.barrier();
      }));
    });
    EXPECT_THAT(text, testing::StartsWith(fmt::format("worker 1 left at {:.6f} s, but barrier (workers/simulated_cl",
                                                      leaves_first ? 2.5 : 0.0)));
    EXPECT_THAT(text, testing::HasSubstr("needs every worker"));
  }
}

TEST(SimulatedCluster, DifferentCollectivesAtOnceAreExplained) {
  const SimulatedRun setup{.workers = 2};
  const std::string text = message_of([&] {
    setup.run(Script([](Worker& worker) {
      if (worker.rank() == Rank{0}) return worker.barrier();
      worker.average_model({});
    }));
  });
  EXPECT_EQ(text, "worker 1 calls average_model, but the others wait in barrier");
}

TEST(SimulatedCluster, AnExceptionOfOneWorkerEndsTheRun) {
  const SimulatedRun setup{.workers = 3};
  const std::string text = message_of([&] {
    setup.run(Script([](Worker& worker) {
      worker.barrier();
      if (worker.rank() == Rank{1}) throw std::runtime_error("bad idea");
      worker.barrier();
    }));
  });
  EXPECT_EQ(text, "bad idea");
}

TEST(SimulatedCluster, AnInterruptEndsTheRun) {
  set_interrupted(true);
  const SimulatedRun setup{};
  EXPECT_THROW(setup.run(Script([](Worker& worker) { compute(worker, 100'000); })), Interrupted);
  set_interrupted(false);
}

TEST(SimulatedCluster, WorkersEndWhenTheirServerHasEnded) {
  const SimulatedRun setup{.workers = 4};
  const auto outcome = setup.run(Script(
      [](Worker& worker) {
        while (worker.receive_model()) worker.send_gradient(worker.compute_step_gradient());
      },
      [](Server& server) {
        server.send_model(Receivers::waiting);
        server.receive();
      }));
  EXPECT_EQ(outcome.totals.end, start_time + from_seconds(2.0));  // model 0.5 s, computing 1 s, gradient 0.5 s
  for (const Account& account : outcome.totals.accounts) EXPECT_EQ(account.total(), from_seconds(2.0));
}

TEST(SimulatedCluster, ATimedWaitEndsWithTheServer) {
  const SimulatedRun setup{.workers = 2};
  const auto outcome = setup.run(Script(
      [](Worker& worker) {
        EXPECT_FALSE(worker.receive({.until = start_time + from_seconds(100)}));
        EXPECT_LE(worker.now(), start_time + from_seconds(2));
      },
      [](Server& server) { server.receive(start_time + from_seconds(2)); }));
  EXPECT_EQ(outcome.totals.end, start_time + from_seconds(2));
}

TEST(SimulatedCluster, AveragingByDifferentPoliciesIsExplained) {
  const SimulatedRun setup{.workers = 2};
  const std::string text = message_of([&] {
    setup.run(Script([](Worker& worker) {
      const StatePolicy moments = worker.rank() == Rank{0} ? StatePolicy::keep : StatePolicy::reset;
      worker.average_model({.policy = {.moments = {moments, moments}}});
    }));
  });
  EXPECT_EQ(text,
            "worker 1 calls average_model (moments: reset, reset, keep; buffers: average; parameters: average), "
            "but the others wait in average_model");
}

// Times of whole steps are drawn ahead: for several workers, or for several steps of one worker. In any order of
// requests, a step takes the time of its own micro-batches.
TEST(SimulatedCluster, WholeStepsTakeWhatTheirMicroBatchesTake) {
  for (const int micro_batches : {1, 3, 12}) {
    SimulatedRun setup{.workers = 40, .micro_batches = micro_batches, .delays = {exponential_delay(0.5)}};
    setup.objective = nullptr;
    const ComputeTime compute_time(1, setup.base_s, {}, setup.delays);
    const auto expected = [&](Rank worker, Step step) {
      std::vector<Duration> times(static_cast<std::size_t>(micro_batches));
      compute_time.durations(worker, step, 0, times);
      return std::accumulate(times.begin(), times.end(), Duration{});
    };
    const auto check = [&](Worker& worker, Step step, const auto& compute) {
      const Time start = worker.now();
      compute();
      EXPECT_EQ(worker.now() - start, expected(worker.rank(), step))
          << micro_batches << " micro-batches, worker " << worker.rank().value << ", step " << step.value();
    };
    // First, all workers take each step together; then each takes several steps alone, and skips some. In the second
    // run, a worker gets a model from a server before each step.
    setup.run(Script([&](Worker& worker) {
      for (int round = 0; round < 20; ++round) {
        check(worker, worker.step(), [&] { worker.descend(worker.compute_step_gradient()); });
        worker.barrier();
      }
      for (int step = 0; step < 20; ++step)
        check(worker, worker.step(), [&] { worker.descend(worker.compute_step_gradient()); });
      worker.skip_steps(3);
      for (int step = 0; step < 3; ++step)
        check(worker, worker.step(), [&] { worker.descend(worker.compute_step_gradient()); });
    }));
    setup.run(Script(
        [&](Worker& worker) {
          for (Step step = 0; step < Step{25} && worker.receive_model(); ++step) {
            Gradient gradient;
            check(worker, step, [&] { gradient = worker.compute_step_gradient(Samples::in_turn); });
            worker.send_gradient(std::move(gradient));
          }
        },
        [](Server& server) {
          server.send_model(Receivers::all);
          for (int received = 0; received < 40 * 25;) {
            const auto message = server.receive();
            if (!message) continue;
            ++received;
            server.accept(*message);
            server.send_model(message->from);
          }
        }));
  }
}

TEST(SimulatedCluster, TheEndOfTheVirtualClockIsAnErrorAndNoOverflow) {
  SimulatedRun setup{.micro_batches = 3, .base_s = 4e9, .budget = {.steps = 30}};
  EXPECT_THAT(message_of([&] { setup.run(SyncSgd()); }),
              testing::HasSubstr("virtual time of worker 0 exceeds the clock's range"));
}

TEST(SimulatedCluster, ThousandsOfWorkersAreCheap) {
  SimulatedRun setup{.workers = many_fibers, .budget = {.steps = 3}, .objective = nullptr};
  const auto outcome = setup.run(Script([](Worker& worker) {
    while (worker.budget_left()) {
      Gradient sum = worker.compute_step_gradient();
      worker.all_reduce_sum(sum);
      worker.descend(sum);
    }
  }));
  EXPECT_EQ(outcome.totals.end, start_time + from_seconds(4.5));
}

// A fixed cost per message, or a network whose messages wait for each other or vary in cost.
std::shared_ptr<const NetworkModel> any_network(int workers) {
  const Link link{0.1, 20};  // a model of 16 bytes takes 0.8 s
  switch (*rc::gen::inRange(0, 4)) {
    case 1:
      return make_parameter_server_network(workers, link);
    case 2:
      return with_jitter(make_ring_network(link.latency_s, link.bandwidth_bytes_per_s), 3, 1);
    case 3:
      return with_jitter(make_parameter_server_network(workers, link), 3, 1);
    default:
      return nullptr;
  }
}

// Whatever programs compute, reduce and send, the activities of each worker add up to the run's time T.
TEST(SimulatedCluster, EveryWorkerSecondIsAccountedFor) {
  EXPECT_TRUE(rc::check("accounts sum to N x T", [] {
    const int workers = *rc::gen::inRange(1, 7);
    const bool has_server = *rc::gen::arbitrary<bool>();
    const auto rounds = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 5));
    std::vector<double> delays;
    for (int i = 0; i < workers; ++i) delays.push_back(*rc::gen::inRange(0, 3000) * 1e-3);
    SimulatedRun setup{.workers = workers,
                       .network_s = *rc::gen::inRange(0, 900) * 1e-3,
                       .network = any_network(workers),
                       .delays = {std::make_shared<DelayOfWorker>(delays)},
                       .objective = nullptr};
    const auto work = [&](Worker& worker) {
      for (const int kind : rounds) {
        const Deadline deadline(later(worker.now(), from_seconds(1.7)));
        for (int i = 0; i < kind; ++i) worker.compute_gradient(deadline);
        if (kind == 0) worker.barrier();
        if (kind == 1) worker.average_model({});
        if (kind == 2 && worker.rank() != Rank{0})
          worker.send(Rank{0}, {.kind = worker.rank() > Rank{1} ? Message::Kind::model : Message::Kind::note});
        if (kind == 3) worker.receive({.until = later(worker.now(), from_seconds(0.4))});
        Gradient sum;
        if (kind == 4) worker.all_reduce_sum(sum);
      }
    };
    const auto serve = [](Server& server) { server.receive(start_time + from_seconds(3.3)); };
    const auto outcome = setup.run(has_server ? Script(work, serve) : Script(work));
    for (const Account& account : outcome.totals.accounts) {
      RC_ASSERT(account.total() == outcome.totals.end.time_since_epoch());
      for (const Duration time : account.time) RC_ASSERT(time >= Duration{});
    }
  }));
}

// StartedCollectives: collectives that continue while their workers compute. Times are closed forms.

constexpr double base_s = 0.01;
constexpr double network_s = 0.004;

Place here(SourceLine at = SourceLine::current()) { return {"test", at}; }

struct Simulated {
  Executor executor{0};
  Training training{nullptr, nullptr, {}, executor};
  std::unique_ptr<NetworkModel> network = make_fixed_network(network_s);
  ComputeTime compute_time{1, base_s, {}, {}};

  RunTotals run(int workers, const std::function<void(Cluster&, Rank)>& program) {
    SimulatedCluster cluster(
        {.workers = workers, .compute_time = compute_time, .network = *network, .training = training});
    return cluster.run([&](Rank rank) { program(cluster, rank); }, nullptr);
  }
};

void compute_for(Cluster& cluster, Rank self, int count) {
  for (int i = 0; i < count; ++i) cluster.compute_gradient(self, nullptr, {self, 0, i}, {self, 0, i}, {});
}

double at(Cluster& cluster, Rank self) { return to_seconds(cluster.now(self) - start_time); }

StartedCollective start(Cluster& cluster, Rank self) {
  return cluster.start(self, Collective::all_reduce({}), {}, here());
}

StartedCollective start_partial(Cluster& cluster, Rank self, int quorum) {
  return cluster.start(self, Collective::partial_all_reduce({}, {.quorum = quorum}, LateGradient::drop), {}, here());
}

// Worker 0 starts the sum at 40 ms. The result arrives at 44 ms, while worker 1 is still computing.
TEST(StartedCollectives, WhoComputesLongerPaysNothing) {
  Simulated simulated;
  const RunTotals totals = simulated.run(2, [](Cluster& cluster, Rank self) {
    if (self == Rank{0}) compute_for(cluster, self, 4);
    auto started = start(cluster, self);
    if (self == Rank{1}) compute_for(cluster, self, 5);
    const auto result = cluster.finish(self, std::move(started), here());
    EXPECT_DOUBLE_EQ(to_seconds(result.agreement.time - start_time), 0.044);
    EXPECT_DOUBLE_EQ(at(cluster, self), self == Rank{0} ? 0.044 : 0.05);
  });
  EXPECT_EQ(totals.accounts[1][Activity::wait], Duration{});
  EXPECT_EQ(totals.accounts[1][Activity::communicate], Duration{});
  EXPECT_EQ(totals.accounts[0][Activity::communicate], from_seconds(network_s));
  EXPECT_EQ(totals.accounts[0][Activity::wait], from_seconds(0.006));  // until worker 1 ends at 50 ms
}

// Worker 1 requests the result at 20 ms, and worker 2 at 39 ms. The last arrival is at 40 ms.
TEST(StartedCollectives, WhatIsLeftWhenAskedForIsPaid) {
  Simulated simulated;
  const RunTotals totals = simulated.run(3, [](Cluster& cluster, Rank self) {
    if (self == Rank{0}) compute_for(cluster, self, 4);
    auto started = start(cluster, self);
    if (self == Rank{1}) compute_for(cluster, self, 2);
    if (self == Rank{2})
      cluster.compute_gradient(self, nullptr, {self, 1, 0}, {self, 1, 0}, Deadline(Time{from_seconds(0.009)}));
    if (self == Rank{2}) compute_for(cluster, self, 3);
    cluster.finish(self, std::move(started), here());
    EXPECT_DOUBLE_EQ(at(cluster, self), 0.044);
  });
  EXPECT_EQ(totals.accounts[1][Activity::wait], from_seconds(0.02));
  EXPECT_EQ(totals.accounts[1][Activity::communicate], from_seconds(network_s));
  EXPECT_EQ(totals.accounts[2][Activity::wait], from_seconds(0.001));  // requested at 39 ms
  EXPECT_EQ(totals.accounts[2][Activity::communicate], from_seconds(network_s));
}

// Both collectives are started at once. The second one uses the network after the first has ended.
TEST(StartedCollectives, OfTheSameMembersGoOneAfterAnother) {
  Simulated simulated;
  simulated.run(3, [](Cluster& cluster, Rank self) {
    auto first = start(cluster, self);
    auto second = start(cluster, self);
    EXPECT_DOUBLE_EQ(to_seconds(cluster.finish(self, std::move(second), here()).agreement.time - start_time),
                     2 * network_s);
    EXPECT_DOUBLE_EQ(to_seconds(cluster.finish(self, std::move(first), here()).agreement.time - start_time), network_s);
    EXPECT_DOUBLE_EQ(at(cluster, self), 2 * network_s);
  });
}

// Groups of two have their own networks: workers 2 and 3 continue while worker 0 waits for worker 1.
TEST(StartedCollectives, OfDifferentMembersDoNotMeet) {
  Simulated simulated;
  simulated.run(4, [](Cluster& cluster, Rank self) {
    if (self == Rank{1}) compute_for(cluster, self, 3);
    auto of_group = cluster.start(self, Collective::average(nullptr, {.group_size = 2}), {}, here());
    auto of_all = start(cluster, self);
    EXPECT_DOUBLE_EQ(to_seconds(cluster.finish(self, std::move(of_group), here()).agreement.time - start_time),
                     (self.value < 2 ? 0.03 : 0) + network_s);
    EXPECT_DOUBLE_EQ(to_seconds(cluster.finish(self, std::move(of_all), here()).agreement.time - start_time),
                     0.03 + network_s);
  });
}

// Worker 1 arrives at the sum at 0 ms, worker 0 at 40 ms. The sum is complete at 44 ms, while worker 1 is still
// computing.
TEST(StartedCollectives, WhoComputesLongerThanAPartialSumTakesPaysNothing) {
  Simulated simulated;
  const RunTotals totals = simulated.run(2, [](Cluster& cluster, Rank self) {
    if (self == Rank{0}) compute_for(cluster, self, 4);
    auto started = start_partial(cluster, self, 2);
    if (self == Rank{1}) compute_for(cluster, self, 5);
    const auto result = cluster.finish(self, std::move(started), here());
    ASSERT_EQ(result.sums.size(), 1u);
    EXPECT_EQ(result.sums[0].contributors, 2);
    EXPECT_DOUBLE_EQ(to_seconds(result.agreement.time - start_time), 0.044);
    EXPECT_DOUBLE_EQ(at(cluster, self), self == Rank{0} ? 0.044 : 0.05);
  });
  EXPECT_EQ(totals.accounts[0][Activity::wait], Duration{});
  EXPECT_EQ(totals.accounts[0][Activity::communicate], from_seconds(network_s));
}

// Worker 0 makes a second sum while worker 1 computes. Worker 1 was in time for the first sum, and gets only that. It
// is late for the second sum, which it gets when it arrives there.
TEST(StartedCollectives, WhoWasInTimeGetsItsOwnPartialSumAlone) {
  Simulated simulated;
  simulated.run(2, [](Cluster& cluster, Rank self) {
    auto started = start_partial(cluster, self, 2);
    if (self == Rank{1}) compute_for(cluster, self, 5);
    EXPECT_EQ(cluster.finish(self, std::move(started), here()).sums.size(), 1u);
    const auto second = cluster.finish(self, start_partial(cluster, self, 1), here());
    ASSERT_EQ(second.sums.size(), 1u);
    EXPECT_EQ(second.sums[0].contributors, 1);
    EXPECT_DOUBLE_EQ(to_seconds(second.agreement.time - start_time), 2 * network_s);
  });
}

std::string failure_of(const std::function<void(Cluster&, Rank)>& program) {
  Simulated simulated;
  try {
    simulated.run(3, program);
  } catch (const RunFailure& failure) {
    return failure.what();
  }
  return "none";
}

TEST(StartedCollectives, AWorkerThatLeavesBeforeItsStartIsMissed) {
  EXPECT_THAT(failure_of([](Cluster& cluster, Rank self) {
                if (self == Rank{1}) return compute_for(cluster, self, 1);
                auto started = start(cluster, self);
                compute_for(cluster, self, 5);
                cluster.finish(self, std::move(started), here());
              }),
              testing::HasSubstr("worker 1 left at 0.010000 s"));
}

TEST(StartedCollectives, AWorkerHasOnePartialSumUnderWay) {
  EXPECT_THAT(failure_of([](Cluster& cluster, Rank self) {
                start_partial(cluster, self, 3);
                start_partial(cluster, self, 3);
              }),
              testing::HasSubstr("worker 0 starts a partial all-reduce before it has finished the previous one"));
}

TEST(StartedCollectives, DescriptionsMustBeAlike) {
  EXPECT_THAT(
      failure_of([](Cluster& cluster, Rank self) {
        const Slice slice{self == Rank{2} ? 1 : 0, 2};
        cluster.finish(self, cluster.start(self, Collective::average(nullptr, {.slice = slice}), {}, here()), here());
      }),
      testing::HasSubstr("worker 2 calls average_model of slice 1 of 2, but the others wait in average_model of "
                         "slice 0 of 2"));
}

// OverlappedExchange: exchanges that begin during the backward pass, compared with a closed form for equal workers, and
// with a recursion by hand for unequal ones.

constexpr double latency_s = 0.01, bandwidth = 100;
constexpr double bytes = 16;  // size of a gradient

double sum_s(double payload, int workers) {
  return 2.0 * (workers - 1) * latency_s + 2.0 * (workers - 1) / workers * payload / bandwidth;
}

SimulatedRun setup(const Overlap& overlap) {
  return {.workers = 4,
          .micro_batches = 3,
          .base_s = 0.25,
          .network = make_ring_network(latency_s, bandwidth, {.overlap = overlap}),
          .budget = {.steps = 5}};
}

// For equal workers a step takes its computation and max(c(P / K), K c(P / K) - f d (K - 1) / K): K buckets of P bytes
// in total, c(x) the time to sum x bytes, f the overlapped share of d, the last micro-batch's time.
TEST(OverlappedExchange, OfEqualWorkersHasAClosedForm) {
  for (const int buckets : {1, 2, 8})
    for (const double share : {0.0, 0.2, 0.66, 1.0}) {
      const SimulatedRun run = setup({buckets, share});
      const double one_s = sum_s(bytes / buckets, run.workers);
      const double visible_s =
          std::max(one_s, buckets * one_s - share * run.base_s * (buckets - 1) / static_cast<double>(buckets));
      const double step_s = run.micro_batches * run.base_s + visible_s;
      const auto outcome = run.run(SyncSgd());
      EXPECT_NEAR(to_seconds(outcome.totals.end), 5 * step_s, 1e-7) << buckets << " buckets, share " << share;
      EXPECT_NEAR(to_seconds(outcome.totals.accounts[0][Activity::communicate]), 5 * visible_s, 1e-7);
      expect_exact_accounts(outcome);
    }
}

// Overlap changes neither values nor bytes.
TEST(OverlappedExchange, ChangesTimesAlone) {
  SimulatedRun plain = setup({2, 0.66});
  plain.network = make_ring_network(latency_s, bandwidth);
  const auto before = plain.run(SyncSgd()), after = setup({2, 0.66}).run(SyncSgd());
  EXPECT_EQ(after.parameters, before.parameters);
  EXPECT_EQ(after.totals.bytes, before.totals.bytes);
  EXPECT_LT(after.totals.end, before.totals.end);
}

// Worker 1 is twice as slow as worker 0, so its buckets determine the times.
TEST(OverlappedExchange, OfUnequalWorkersWaitsForEachBucketOfTheSlowest) {
  SimulatedRun run = setup({2, 0.5});
  run.workers = 2;
  run.worker_factors = {1, 2};
  run.budget = {.steps = 1};
  const double one_s = sum_s(bytes / 2, 2), done_s = 3 * 2 * run.base_s, d = 2 * run.base_s;
  const double first_s = done_s - 0.5 * d / 2 + one_s;  // when the first bucket has been summed
  EXPECT_NEAR(to_seconds(run.run(SyncSgd()).totals.end), std::max(first_s, done_s) + one_s, 1e-7);
}

// Workers that lose their last micro-batch send nothing before the threshold. Workers that lose none send a bucket
// during their last micro-batch.
TEST(OverlappedExchange, OfDropCompute) {
  SimulatedRun run = setup({2, 1.0});
  run.budget = {.steps = 1};
  const double one_s = sum_s(bytes / 2, run.workers);
  const auto end_s = [&](double threshold_s) {
    return to_seconds(run.run(DropCompute(from_seconds(threshold_s), Preempt::discard, 0)).totals.end);
  };
  EXPECT_NEAR(end_s(0.6), 0.6 + 2 * one_s, 1e-7);
  EXPECT_NEAR(end_s(0.8), 0.75 + std::max(one_s, 2 * one_s - run.base_s / 2), 1e-7);
}

// DeadlineTies: micro-batches that end, begin, or end their forward pass exactly at a deadline. The sources differ
// (workers/time/compute_time.hpp): Algorithm 1 of Giladi et al. 2023 keeps micro-batches that end before the deadline,
// and the reference codes stop micro-batches that are past it.

constexpr std::int64_t second = 1'000'000'000;

// A worker's results in a step of three micro-batches of a second each, under a threshold.
struct Case {
  Preempt preempt;
  std::int64_t threshold_ns;
  int kept;
  std::int64_t stops_ns;      // when its work in the step ends
  std::int64_t discarded_ns;  // the discarded part of its work
};

// The first half of a micro-batch is its forward pass.
const std::vector<Case> cases = {
    // The second micro-batch ends a nanosecond before the deadline, at it, and a nanosecond after it.
    {Preempt::discard, 2 * second + 1, 2, 2 * second + 1, 1},
    {Preempt::discard, 2 * second, 1, 2 * second, second},
    {Preempt::discard, 2 * second - 1, 1, 2 * second - 1, second - 1},
    // The same three, with preempt = "layer", which keeps a micro-batch that ends at the deadline.
    {Preempt::layer, 2 * second + 1, 2, 2 * second + 1, 1},
    {Preempt::layer, 2 * second, 2, 2 * second, 0},
    {Preempt::layer, 2 * second - 1, 1, 2 * second - 1, second - 1},
    // The third micro-batch begins before, at, and after the deadline.
    {Preempt::microbatch, 2 * second + 1, 3, 3 * second, 0},
    {Preempt::microbatch, 2 * second, 3, 3 * second, 0},
    {Preempt::microbatch, 2 * second - 1, 2, 2 * second, 0},
    // The same three, but the third's forward pass ends too late, if it begins.
    {Preempt::backward, 2 * second + 1, 2, 2 * second + second / 2, second / 2},
    {Preempt::backward, 2 * second, 2, 2 * second + second / 2, second / 2},
    {Preempt::backward, 2 * second - 1, 2, 2 * second, 0},
    // The third's forward pass ends before, at, and after the deadline.
    {Preempt::backward, 2 * second + second / 2 + 1, 3, 3 * second, 0},
    {Preempt::backward, 2 * second + second / 2, 3, 3 * second, 0},
    {Preempt::backward, 2 * second + second / 2 - 1, 2, 2 * second + second / 2, second / 2},
};

std::string name_of(const Case& tie) {
  return fmt::format("preempt {}, threshold {} ns", static_cast<int>(tie.preempt), tie.threshold_ns);
}

// Checks each case with two workers that take two steps.
void expect_ties_decided(bool in_lockstep) {
  for (const Case& tie : cases) {
    SCOPED_TRACE(name_of(tie));
    const SimulatedRun setup{.workers = 2, .micro_batches = 3, .in_lockstep = in_lockstep, .objective = nullptr};
    const auto outcome = setup.run(DropCompute(Duration{tie.threshold_ns}, tie.preempt, 0.5));
    EXPECT_EQ(outcome.totals.kept, std::vector<std::int64_t>(2, 2 * tie.kept));
    EXPECT_EQ(outcome.totals.dropped, std::vector<std::int64_t>(2, 2 * (3 - tie.kept)));
    ASSERT_EQ(outcome.rounds.size(), 2u);
    EXPECT_EQ(outcome.rounds.front().end.time_since_epoch().count(), tie.stops_ns + second / 2);  // plus the collective
    for (const Account& account : outcome.totals.accounts) {
      EXPECT_EQ(account[Activity::discarded].count(), 2 * tie.discarded_ns);
      EXPECT_EQ(account[Activity::compute].count(), 2 * (tie.stops_ns - tie.discarded_ns));
      EXPECT_EQ(account[Activity::wait].count(), 0);
    }
    expect_exact_accounts(outcome);
  }
}

TEST(DeadlineTies, AreDecidedAsInTheSourcesOnFibers) { expect_ties_decided(false); }
TEST(DeadlineTies, AreDecidedAsInTheSourcesInLockstep) { expect_ties_decided(true); }

// Micro-batches of the other workers end before or after the deadline. This does not change what happens to a
// micro-batch that ends at the deadline.
TEST(DeadlineTies, OfOneWorkerConcernItAlone) {
  for (const bool in_lockstep : {false, true}) {
    SimulatedRun setup{.workers = 40, .micro_batches = 3, .budget = {.steps = 1}, .in_lockstep = in_lockstep};
    setup.objective = nullptr;
    setup.worker_factors.assign(40, 1.0);
    for (std::size_t worker = 0; worker < 40; worker += 3) setup.worker_factors[worker] = 0.9;
    for (std::size_t worker = 1; worker < 40; worker += 3) setup.worker_factors[worker] = 1.1;
    const auto kept = [&](Preempt preempt) {
      return setup.run(DropCompute(Duration{2 * second}, preempt, 0.5)).totals.kept;
    };
    std::vector<std::int64_t> discard, microbatch;
    for (std::size_t worker = 0; worker < 40; ++worker) {
      discard.push_back(worker % 3 == 0 ? 2 : 1);     // their second micro-batches end at 1.8, 2.2 and 2.0 s
      microbatch.push_back(worker % 3 == 1 ? 2 : 3);  // a third one begins at these times, if not too late
    }
    EXPECT_EQ(kept(Preempt::discard), discard);
    EXPECT_EQ(kept(Preempt::microbatch), microbatch);
  }
}

// One worker, with the deadline and the outage in its first micro-batch.
struct WithOutage {
  double begin_s, duration_s;  // the outage's begin and duration
  std::int64_t threshold_ns;
  int kept;
  double stops_s, discarded_s;
};

TEST(DeadlineTies, ABackwardPassIsJudgedWhereItsForwardPassEndsAfterAnOutage) {
  const std::int64_t ms = second / 1000;
  const std::vector<WithOutage> cases = {
      // The forward pass of half a second ends at 0.9 s: 0.2 s are before the outage, 0.3 s after it.
      {0.2, 0.4, 900 * ms + 1, 1, 1.4, 0},
      {0.2, 0.4, 900 * ms, 1, 1.4, 0},
      {0.2, 0.4, 900 * ms - 1, 0, 0.9, 0.5},
      // The deadline is at the outage's end, where the rest of a forward pass still runs and is discarded; or it is
      // within the outage.
      {0.2, 0.4, 600 * ms, 0, 0.9, 0.5},
      {0.2, 0.4, 600 * ms - 1, 0, 0.6, 0.2},
      // The outage begins when the forward pass ends. The backward pass follows it, unless the forward pass was late.
      {0.5, 0.4, 700 * ms, 1, 1.4, 0},
      {0.5, 0.4, 500 * ms, 1, 1.4, 0},
      {0.5, 0.4, 500 * ms - 1, 0, 0.5, 0.5},
      // The outage begins with 0.1 s of the forward pass left.
      {0.4, 0.3, 800 * ms, 1, 1.3, 0},
      {0.4, 0.3, 800 * ms - 1, 0, 0.8, 0.5},
  };
  for (const WithOutage& tie : cases) {
    SCOPED_TRACE(
        fmt::format("outage at {} s for {} s, threshold {} ns", tie.begin_s, tie.duration_s, tie.threshold_ns));
    SimulatedRun setup{.workers = 1, .network_s = 0, .budget = {.steps = 1}, .objective = nullptr};
    setup.outages = std::make_shared<OutagePlan>(
        1,
        std::vector<OutageEntry>{{.when = ScheduledOutage{from_seconds(tie.begin_s), from_seconds(tie.duration_s)}}});
    const auto outcome = setup.run(DropCompute(Duration{tie.threshold_ns}, Preempt::backward, 0.5));
    EXPECT_EQ(outcome.totals.kept.front(), tie.kept);
    EXPECT_EQ(outcome.totals.end, start_time + from_seconds(tie.stops_s));
    const Account& account = outcome.totals.accounts.front();
    EXPECT_EQ(account[Activity::discarded], from_seconds(tie.discarded_s));
    EXPECT_EQ(account[Activity::compute], from_seconds(tie.kept));
    expect_exact_accounts(outcome);
  }
}

}  // namespace
}  // namespace syncopate
