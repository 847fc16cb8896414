// What outages do to methods: closed forms of time, of what is lost, and of the models.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/three_workers.hpp"

namespace syncopate {
namespace {

using Plan = std::shared_ptr<const OutagePlan>;

Plan outage(int worker, double at_s, double duration_s, bool loses_state = false) {
  return std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{worker}},
                                   .when = ScheduledOutage{from_seconds(at_s), from_seconds(duration_s)},
                                   .loses_state = loses_state}});
}

double seconds_of(const SimulatedRun::Outcome& outcome, int worker, Activity activity) {
  return to_seconds(outcome.totals.accounts.at(static_cast<std::size_t>(worker))[activity]);
}

TEST(OutageRuns, OneDelaysExactlyItsStepOfSynchronousSgd) {
  SimulatedRun setup{.budget = {.steps = 3}};
  const auto without = setup.run(SyncSgd());
  // A step is 1 s and 0.5 s on the network; the second one is computed from 1.5 to 2.5 s.
  setup.outages = outage(1, 2.0, 0.75);
  const auto kept = setup.run(SyncSgd());
  EXPECT_EQ(kept.log, (Log{"step 1 at 1.500 s: kept 3, dropped 0", "step 2 at 3.750 s: kept 3, dropped 0",
                           "step 3 at 5.250 s: kept 3, dropped 0"}));
  EXPECT_EQ(kept.parameters, without.parameters);
  EXPECT_EQ(seconds_of(kept, 1, Activity::down), 0.75);
  EXPECT_EQ(seconds_of(kept, 1, Activity::compute), 3);
  EXPECT_EQ(seconds_of(kept, 0, Activity::wait), 0.75);
  expect_exact_accounts(kept);

  setup.outages = outage(1, 2.0, 0.75, true);  // half a second's work is done again
  const auto lost = setup.run(SyncSgd());
  EXPECT_EQ(lost.log.back(), "step 3 at 5.750 s: kept 3, dropped 0");
  EXPECT_EQ(lost.parameters, without.parameters);
  EXPECT_EQ(seconds_of(lost, 1, Activity::down), 0.75);
  EXPECT_EQ(seconds_of(lost, 1, Activity::discarded), 0.5);
  expect_exact_accounts(lost);
}

TEST(OutageRuns, OneThatBeginsWhileAWorkerWaitsCountsFromItsNextMicroBatch) {
  SimulatedRun setup{.delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.0, 1.0})}};
  for (const bool loses_state : {false, true}) {
    // Worker 0 waits from 1 to 2 s, and the first collective ends at 2.5 s.
    setup.outages = outage(0, 1.2, 0.3, loses_state);
    const auto past = setup.run(SyncSgd());
    EXPECT_EQ(past.log.back(), "step 2 at 5.000 s: kept 3, dropped 0");
    EXPECT_EQ(seconds_of(past, 0, Activity::down), 0);
    setup.outages = outage(0, 1.8, 1.2, loses_state);
    const auto goes_on = setup.run(SyncSgd());
    EXPECT_EQ(goes_on.log.back(), "step 2 at 5.000 s: kept 3, dropped 0");  // worker 2 is slower still
    EXPECT_EQ(seconds_of(goes_on, 0, Activity::down), 0.5);
    EXPECT_EQ(seconds_of(goes_on, 0, Activity::compute), 2);
    EXPECT_EQ(seconds_of(goes_on, 0, Activity::wait), 1.5);
    expect_exact_accounts(goes_on);
  }
}

TEST(OutageRuns, ADeadlineThatPassesWithinOneEndsTheStepAfterIt) {
  const auto method = read_method("algorithm = \"dropcompute\"\nthreshold_s = 2.5\n");
  const auto outcome =
      SimulatedRun{.workers = 2, .micro_batches = 3, .budget = {.steps = 1}, .outages = outage(0, 2.2, 1.0)}.run(
          *method.algorithm);
  EXPECT_EQ(outcome.log, Log{"step 1 at 3.700 s: kept 4, dropped 2"});
  EXPECT_NEAR(seconds_of(outcome, 0, Activity::discarded), 0.2, 1e-9);
  EXPECT_EQ(seconds_of(outcome, 0, Activity::down), 1);
  EXPECT_NEAR(seconds_of(outcome, 1, Activity::wait), 0.7, 1e-9);
  expect_exact_accounts(outcome);
}

// Two workers of 1 s, messages of 0.25 s: worker 0's gradients arrive at 1.5, 3, 4.5, 6, ... s whatever worker 1 does.
TEST(OutageRuns, OfAsynchronousSgdConcernsItsWorkerAlone) {
  SimulatedRun setup{.workers = 2, .network_s = 0.25, .budget = {.steps = 3}, .outages = outage(1, 0.5, 4)};
  // Worker 1 has 0.75 s left at 4.5 s: its gradients arrive at 5.5 (of version 0, at version 3) and 7 s.
  const auto kept = setup.run(AsyncSgd({}));
  EXPECT_EQ(kept.totals.end, Time{from_seconds(7)});
  EXPECT_EQ(kept.totals.kept, (Counts{4, 2}));
  EXPECT_EQ(kept.totals.staleness, (Counts{3, 2, 0, 1}));
  EXPECT_EQ(seconds_of(kept, 1, Activity::down), 4);
  EXPECT_EQ(seconds_of(kept, 1, Activity::compute), 2);
  expect_exact_accounts(kept);

  // It asks at 4.5 s, the server answers at 4.75 s with version 3, and the gradient arrives at 6.25 s.
  setup.outages = outage(1, 0.5, 4, true);
  const auto lost = setup.run(AsyncSgd({}));
  EXPECT_EQ(lost.totals.end, Time{from_seconds(7.5)});
  EXPECT_EQ(lost.totals.kept, (Counts{5, 1}));
  EXPECT_EQ(lost.totals.staleness, (Counts{4, 2}));
  EXPECT_EQ(lost.totals.messages, kept.totals.messages + 2);
  EXPECT_EQ(seconds_of(lost, 1, Activity::down), 4);
  EXPECT_EQ(seconds_of(lost, 1, Activity::compute), 1);
  EXPECT_EQ(seconds_of(lost, 1, Activity::discarded), 0.25 + 1);  // before it, and what nobody takes at the end
  expect_exact_accounts(lost);

  // Down when the run ends, after six gradients of worker 0.
  setup.outages = outage(1, 0.5, 100);
  const auto gone = setup.run(AsyncSgd({}));
  EXPECT_EQ(gone.totals.end, Time{from_seconds(9)});
  EXPECT_EQ(gone.totals.kept, (Counts{6, 0}));
  EXPECT_EQ(seconds_of(gone, 1, Activity::down), 8.5);
  EXPECT_EQ(seconds_of(gone, 1, Activity::discarded), 0.25);
  expect_exact_accounts(gone);
}

TEST(OutageRuns, AMessageThatCancelsWaitsUntilTheWorkerIsUp) {
  // Worker 1 needs 6 s; models arrive at 0.25 and 1.75 s, when it is down, and the run ends at 3 s.
  const BackupWorkers method(1, {.late = BackupOptions::Late::cancel});
  for (const bool loses_state : {false, true}) {
    const auto outcome = SimulatedRun{.workers = 2,
                                      .network_s = 0.25,
                                      .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 5.0})},
                                      .outages = outage(1, 1, 1.5, loses_state)}
                             .run(method);
    EXPECT_EQ(outcome.totals.end, Time{from_seconds(3)});
    EXPECT_EQ(seconds_of(outcome, 1, Activity::down), 1.5);
    EXPECT_EQ(seconds_of(outcome, 1, Activity::discarded), 0.75 + 0.5);  // cancelled, and until the end
    EXPECT_EQ(outcome.totals.kept, (Counts{2, 0}));
    expect_exact_accounts(outcome);
  }
}

TEST(OutageRuns, LocalSgdLosesItsLocalSteps) {
  constexpr double rate = 0.1, momentum = 0.5;
  SimulatedRun setup{.workers = 2, .momentum = momentum, .rate = rate, .budget = {.steps = 8}};
  setup.outages = outage(1, 2.5, 1, true);
  const auto outcome = setup.run(LocalSgd(make_constant_period(4), {}));
  // Two steps and a half are lost; the last two of the round are computed from 3.5 s on.
  EXPECT_EQ(outcome.log, (Log{"step 4 at 6.000 s: kept 6, dropped 2", "step 8 at 10.500 s: kept 8, dropped 0"}));
  EXPECT_EQ(outcome.totals.kept, (Counts{8, 6}));
  EXPECT_EQ(outcome.totals.dropped, (Counts{0, 2}));
  EXPECT_EQ(outcome.samples, 14);
  EXPECT_EQ(seconds_of(outcome, 1, Activity::discarded), 2.5);
  EXPECT_EQ(seconds_of(outcome, 1, Activity::compute), 6);
  EXPECT_EQ(seconds_of(outcome, 1, Activity::down), 1);
  expect_exact_accounts(outcome);
  for (std::size_t i = 0; i < 4; ++i) {
    std::vector<double> theta(2, 1.0), velocity(2, 0.0);
    for (int step = 0; step < 8; ++step) {
      for (std::size_t k = 0; k < 2; ++k) {
        if (k == 1 && step < 2) continue;  // of no consequence
        velocity[k] =
            momentum * velocity[k] + theta[k] - PullObjective::target({Rank{static_cast<int>(k)}, step, 0}, i);
        theta[k] -= rate * velocity[k];
      }
      if (step % 4 == 3) theta[0] = theta[1] = (theta[0] + theta[1]) / 2;
    }
    EXPECT_NEAR(outcome.parameters[i], theta[0], 1e-5);
  }
}

// Every method by its row's example, and what takes another course of some.
std::vector<std::string> methods() {
  std::vector<std::string> all = {
      "algorithm = \"backup-workers\"\nbackups = 1\nlate = \"cancel\"",
      "algorithm = \"backup-workers\"\nbackups = 1\nservers = 2",
      "algorithm = \"async-local-sgd\"\nlocal_steps = 3\nupdate = { name = \"buffered\", size = 2 }\ngrace_s = 0.5",
      "algorithm = \"decoupled-diloco\"\nquorum = 2\nfragments = 2\ngrace = { margin = 0.9 }\nouter = { name = "
      "\"plain\" }",
      "algorithm = \"elastic-averaging\"\nbeta = 0.8\nperiod = 2\nexchange = \"asynchronous\"",
      "algorithm = \"elastic-averaging\"\nbeta = 0.8\nperiod = 2",
      "algorithm = \"decentralized-sgd\"\ngraph = { kind = \"complete\" }",
      "algorithm = \"ad-psgd\"\noverlap_steps = 0",
      "algorithm = \"stochastic-gradient-push\"\ngraph = { kind = \"hypercube\" }",
      "algorithm = \"stochastic-gradient-push\"\noverlap_steps = 2",
      "algorithm = \"stochastic-gradient-push\"\noverlap_steps = 2\noverlap = \"released\"",
  };
  for (const AlgorithmRow& row : algorithms())
    all.push_back(fmt::format("algorithm = \"{}\"\n{}", row.name, row.example));
  return all;
}

TEST(OutageRuns, EveryMethodBooksEachWorkerSecondOnce) {
  for (const std::string& toml : methods()) {
    SCOPED_TRACE(toml);
    const auto method = read_method(toml, {.workers = 4, .micro_batches = 2, .total_steps = Step{24}});
    ASSERT_EQ(method.faults, "");
    SimulatedRun setup{.workers = 4, .micro_batches = 2, .rate = 0.01, .budget = {.steps = 24}};
    setup.delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, 0.2, 0.3})};
    const auto without = setup.run(*method.algorithm);
    for (const bool loses_state : {false, true}) {
      // A plan that strikes nobody changes nothing.
      setup.outages = outage(1, 1e6, 1, loses_state);
      const auto unharmed = setup.run(*method.algorithm);
      EXPECT_EQ(unharmed.log, without.log);
      EXPECT_EQ(unharmed.parameters, without.parameters);
      EXPECT_EQ(unharmed.totals.end, without.totals.end);

      setup.outages = std::make_shared<OutagePlan>(
          3, std::vector<OutageEntry>{{.workers = {}, .when = RandomOutages{7, 2}, .loses_state = loses_state}});
      const auto outcome = setup.run(*method.algorithm);
      expect_exact_accounts(outcome);
      for (int worker = 0; worker < 4; ++worker) EXPECT_GT(seconds_of(outcome, worker, Activity::down), 0);
      for (const std::int64_t dropped : outcome.totals.dropped) EXPECT_GE(dropped, 0);
      EXPECT_GT(outcome.totals.end, without.totals.end);
    }
  }
}

// Alone and with a free network a worker never waits: it is down exactly when its outages are.
TEST(OutageRuns, DownIsTheOverlapOfTheOutagesWithTheRun) {
  for (const bool loses_state : {false, true}) {
    const auto plan = std::make_shared<OutagePlan>(
        3, std::vector<OutageEntry>{{.workers = {}, .when = RandomOutages{5, 1}, .loses_state = loses_state},
                                    {.workers = {}, .when = RandomOutages{9, 2}, .loses_state = false}});
    const auto outcome = SimulatedRun{.workers = 1, .network_s = 0, .budget = {.steps = 200}, .outages = plan}.run(
        LocalSgd(make_constant_period(5), {}));
    WorkerOutages outages = plan->of(Rank{0});
    const Time end = outcome.totals.end;
    Duration down{};
    for (Time t{}; outages.next(t).begin < end;) {
      const Outage next = outages.next(t);
      down += std::min(next.end, end) - next.begin;
      t = next.end;
    }
    EXPECT_GT(down, from_seconds(20));
    EXPECT_EQ(outcome.totals.accounts.front()[Activity::down], down);
    if (!loses_state) {
      EXPECT_EQ(end - start_time, from_seconds(200) + down);
    }
    expect_exact_accounts(outcome);
  }
}

// Worker 1 meets all its outages in one micro-batch, which takes too long: what it has worked between them until the
// run's end is discarded.
TEST(OutageRuns, AMicroBatchThatIsCutOffWithinSeveralIsDownInThemUntilTheEnd) {
  const auto of_worker_1 = [](double at_s, double duration_s) {
    return OutageEntry{.workers = {Rank{1}}, .when = ScheduledOutage{from_seconds(at_s), from_seconds(duration_s)}};
  };
  SimulatedRun setup{.workers = 2, .network_s = 0, .budget = {.steps = 10}};
  setup.delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 1000.0})};
  setup.outages = std::make_shared<OutagePlan>(
      1, std::vector{of_worker_1(5, 1), of_worker_1(10, 2), of_worker_1(16, 30), of_worker_1(70, 5)});
  const auto outcome = setup.run(AsyncSgd({}));
  ASSERT_EQ(outcome.totals.end, start_time + from_seconds(20));  // 2 x 10 gradients, all of worker 0
  EXPECT_EQ(seconds_of(outcome, 1, Activity::down), 1 + 2 + 4);
  EXPECT_EQ(seconds_of(outcome, 1, Activity::discarded), 20 - 7);
  EXPECT_EQ(seconds_of(outcome, 1, Activity::compute), 0);
  EXPECT_EQ(seconds_of(outcome, 0, Activity::compute), 20);
  expect_exact_accounts(outcome);
}

}  // namespace
}  // namespace syncopate
