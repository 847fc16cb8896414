// What only the simulated cluster promises: order of events in virtual time, explained deadlocks,
// exact accounts. What both clusters promise is in cluster_contract.hpp.
#include "workers/simulated/simulated_cluster.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <numeric>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/script.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/many_fibers.hpp"
#include "workers/base/process.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

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
  // Worker 0 runs ahead to 9 s before worker 1 sends at 2 s and worker 2 at 1 s.
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
    worker.send(Rank{0}, {});  // arrives at 11.5 s or later: not seen at 9 s
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
      EXPECT_FALSE(worker.receive());  // nobody is left who could send
    } else {
      compute(worker, 3);
      worker.send(Rank{0}, {});
    }
  }));
  const Account& receiver = outcome.totals.accounts[0];
  EXPECT_EQ(receiver[Activity::wait], from_seconds(3.0));
  EXPECT_EQ(receiver[Activity::communicate], from_seconds(0.5));
}

// A model of 16 bytes takes 2 s on the way, a message without values 1 s: it comes with what was sent before it.
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

// Worker 2 goes on long after worker 1, the only one that worker 0 wants to hear from, has left.
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
  EXPECT_EQ(text, "worker 1 calls average_model while others gather for barrier");
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
  EXPECT_EQ(outcome.totals.end, start_time + from_seconds(2.0));  // 0.5 down, 1 s, 0.5 up
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
  EXPECT_EQ(text, "worker 1 averages by another policy than the others");
}

// Whole steps are drawn ahead for the workers after, or for the steps after: whatever is asked for in whatever order
// takes what its own micro-batches take.
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
    // In the order of the workers; each alone for some steps; the same with a server between; steps left out.
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
              testing::HasSubstr("virtual clock of worker 0 has reached its end"));
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

// The fixed cost of the run, or one of those under which messages wait for each other or vary.
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

// Any program of computations, collectives and messages: the five activities of each worker sum to T.
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

}  // namespace
}  // namespace syncopate
