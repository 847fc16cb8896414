// Parity of methods whose servers use gradients, or the results of local steps, in their order of arrival.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "algorithms/asynchronous/async_local_sgd.hpp"
#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/asynchronous/bounded_delay.hpp"
#include "algorithms/asynchronous/halos.hpp"
#include "algorithms/asynchronous/k_async.hpp"
#include "algorithms/asynchronous/ormo.hpp"
#include "algorithms/asynchronous/rescaled_sgd.hpp"
#include "algorithms/asynchronous/ringleader.hpp"
#include "algorithms/asynchronous/ringmaster.hpp"
#include "algorithms/asynchronous/sliding_window.hpp"
#include "algorithms/asynchronous/softsync.hpp"
#include "algorithms/asynchronous/stale_synchronous.hpp"
#include "algorithms/asynchronous/throttle.hpp"
#include "algorithms/gossip/wagma_sgd.hpp"
#include "algorithms/local_sgd/decoupled_diloco.hpp"
#include "algorithms/local_sgd/elastic_averaging.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/quorum/stsyn.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/workers/expected_parity.hpp"

namespace syncopate {

TEST(Parity, BoundedDelayWithoutDelay) { expect_parity(BoundedDelay(0)); }

TEST(Parity, GradientsThatWorkersClip) {
  constexpr double most = 2;
  const auto parameters = [&](double clip_norm) {
    return Parity(1e-6, 50e-6, make_sgd({.momentum = 0.9}), clip_norm).simulated(SlidingWindow(0)).parameters;
  };
  const bool is_server = session->rank() == workers;
  EXPECT_EQ(parameters(most) != parameters(0), is_server) << "clipping has nothing to do";
  expect_parity(SlidingWindow(0), make_sgd({.momentum = 0.9}), 1e-5, most);
  expect_parity(BoundedDelay(0), make_sgd({.momentum = 0.9}), 1e-5, most);
  expect_parity(BackupWorkers(workers, {.servers = 1}), make_sgd({.momentum = 0.9}), 1e-5, most);
}

TEST(Parity, ASlidingWindowInWhichTheWorkersTakeTurns) { expect_parity(SlidingWindow(0)); }

// If the window waits for all workers, the order of arrivals only changes the order of additions.
TEST(Parity, AsynchronousLocalSgdInAWindowOfAll) {
  AsyncLocalOptions options{.rounds = {.local_steps = 5}, .grace = from_seconds(1e6)};
  options.update = make_buffered_update({.size = workers, .rate = 0.7, .momentum = 0.6});
  expect_parity(AsyncLocalSgd(options));
  options.rounds.moments = StatePolicy::reset;
  options.update = make_delayed_nesterov_update({.rate = 0.7, .momentum = 0.6, .every = workers});
  expect_parity(AsyncLocalSgd(options));
}

// Servers wait for all workers, so arrivals only change the order of additions. Servers also send packets.
TEST(Parity, CompressedMessages) {
  for (const std::string_view kind : {"top-k", "random-k", "sign", "qsgd", "int8", "fp4"}) {
    CompressionOptions options = compression(kind, Compresses::messages, 0.1);
    options.error_feedback = kind != "qsgd";
    options.returns_rejected = kind == "top-k";
    SCOPED_TRACE(kind);
    BackupWorkers gradients(workers);
    gradients.compress(options);
    expect_parity(gradients, make_sgd({.momentum = 0.9}), tolerance_of(kind));
    AsyncLocalOptions local{.rounds = {.local_steps = 5}, .grace = from_seconds(1e6)};
    local.update = make_buffered_update({.size = workers, .rate = 0.7, .momentum = 0.6});
    AsyncLocalSgd differences(local);
    differences.compress(options);
    expect_parity(differences, make_sgd({.momentum = 0.9}), tolerance_of(kind));
    if (kind != "top-k" && kind != "int8") continue;
    Stsyn to_a_mean({.quorum = workers, .local_steps = 5, .most_steps = 5});
    to_a_mean.compress(options);
    expect_parity(to_a_mean, make_sgd({.momentum = 0.9}), tolerance_of(kind));
  }
}

// One round takes all workers, so nothing depends on who is first.
TEST(Parity, CompressedMessagesOfFragments) {
  for (const bool returns : {false, true}) {
    CompressionOptions compressed = compression("top-k", Compresses::messages, 0.1);
    compressed.returns_rejected = returns;
    DecoupledOptions options{
        .minimum_steps = 20, .anchor = DecoupledOptions::Anchor::base, .outer = make_diloco(0.7, 0.6)};
    options.fragments = Fragments(3);
    DecoupledDiLoCo method(options);
    method.compress(compressed);
    Parity parity;
    const Outcome expected = parity.simulated(method), found = parity.mpi(method);
    EXPECT_THAT(found.parameters, testing::Pointwise(testing::FloatNear(1e-5f), expected.parameters));
    EXPECT_EQ(found.totals.bytes, expected.totals.bytes);
    EXPECT_EQ(found.totals.kept, expected.totals.kept);
  }
}

// With one worker nothing depends on who is first.
inline void expect_parity_of_one_worker(const Algorithm& algorithm) {
  Parity parity;
  const Servers servers = algorithm.traits().servers;
  SimulatedCluster simulated({.workers = 1,
                              .servers = servers,
                              .micro_batches = micro_batches,
                              .compute_time = parity.compute_time,
                              .network = *parity.network,
                              .training = parity.training});
  const Outcome expected = parity.run(simulated, algorithm);
  const auto made = make_mpi_cluster({.workers = 1,
                                      .servers = servers,
                                      .compute_time = parity.compute_time,
                                      .training = parity.training,
                                      .session = *session});
  Cluster& mpi = *made;
  const Outcome found = parity.run(mpi, algorithm);
  EXPECT_EQ(found.totals.bytes, expected.totals.bytes);
  EXPECT_EQ(found.totals.messages, expected.totals.messages);
  EXPECT_EQ(found.totals.kept, expected.totals.kept);
  EXPECT_EQ(found.totals.staleness, expected.totals.staleness);
  EXPECT_EQ(expected.parameters.empty(), session->rank() == 0 || session->rank() > servers);
  ASSERT_EQ(found.parameters.size(), expected.parameters.size());
  for (std::size_t i = 0; i < found.parameters.size(); ++i)
    ASSERT_NEAR(found.parameters[i], expected.parameters[i], 1e-5 * (1 + std::abs(expected.parameters[i])));
}

TEST(Parity, HalosOfOneWorker) {
  for (const double mixing : {0.0, 0.25, 1.0})
    expect_parity_of_one_worker(
        Halos({.rounds = {.local_steps = 2},
               .local_update = make_delayed_nesterov_update({.rate = 0.8, .momentum = 0.6, .every = 2}),
               .global_update = make_nesterov_update(0.7, 0.5),
               .merge_every = 2,
               .mixing = mixing}));
}

TEST(Parity, MomentumOnTheServerOfOneWorker) {
  for (const char* toml :
       {"algorithm = 'heloco'\nlocal_steps = 2\ncorrection.agreement = 1", "algorithm = 'ormo'\nmomentum = 0.5",
        "algorithm = 'async-local-sgd'\nlocal_steps = 2\nupdate = { name = 'adam', rate = 0.05 }",
        "algorithm = 'async-local-sgd'\nlocal_steps = 2\nupdate = { name = 'look-ahead', rate = 0.7, momentum = 0.6 }",
        "algorithm = 'async-local-sgd'\nlocal_steps = 2\nupdate = { name = 'look-ahead', rate = 0.7, momentum = 0.6, "
        "hand_out = 'ahead' }"}) {
    SCOPED_TRACE(toml);
    const MethodReading reading = read_method(toml, {.workers = 1});
    ASSERT_EQ(reading.faults, "");
    expect_parity_of_one_worker(*reading.algorithm);
  }
}

// Runs with two regions of one worker, and with one region of three. The clock determines who is first, but all
// differences of models are reported.
TEST(Parity, HalosKeepsItsBudgetOnBothClusters) {
  for (const int regions : {1, 2}) {
    const int workers_here = regions == 1 ? 3 : 2;
    const Halos algorithm({.regions = regions, .rounds = {.local_steps = 2}, .merge_every = 2, .mixing = 0.5});
    Parity parity;
    const Servers servers = algorithm.traits().servers;
    SimulatedCluster simulated({.workers = workers_here,
                                .servers = servers,
                                .micro_batches = micro_batches,
                                .compute_time = parity.compute_time,
                                .network = *parity.network,
                                .training = parity.training});
    const RunTotals expected = parity.run(simulated, algorithm).totals;
    const auto made = make_mpi_cluster({.workers = workers_here,
                                        .servers = servers,
                                        .compute_time = parity.compute_time,
                                        .training = parity.training,
                                        .session = *session});
    Cluster& mpi = *made;
    const RunTotals found = parity.run(mpi, algorithm).totals;
    for (const RunTotals& totals : {expected, found}) {
      const std::int64_t kept = std::accumulate(totals.kept.begin(), totals.kept.end(), std::int64_t{0});
      const std::int64_t budget = 20 * workers_here * micro_batches;
      EXPECT_GE(kept, budget);
      EXPECT_LT(kept, 2 * budget);
      const Bytes model = parity.training.parameter_bytes();
      EXPECT_EQ(totals.bytes, Bytes{totals.messages * model.value()});
      for (const Account& account : totals.accounts) EXPECT_EQ(account.total(), totals.end.time_since_epoch());
    }
  }
}

// The clock determines which gradient arrives when, but not how many gradients arrive and are answered before the end.
TEST(Parity, AsynchronousMethodsSendAsMuchOnBothClusters) {
  const std::vector<std::shared_ptr<const Algorithm>> algorithms = {
      std::make_shared<AsyncSgd>(AsyncSgd::Options{}),
      std::make_shared<Softsync>(workers / 2),
      std::make_shared<Softsync>(8),
      std::make_shared<Ringmaster>(1000),
      std::make_shared<RescaledSgd>(),
      std::make_shared<Ormo>(OrmoOptions{.momentum = 0.5}),
      std::make_shared<Throttle>(ThrottleOptions{.divisor = 4}),
      std::make_shared<StaleSynchronous>(100),
      std::make_shared<BoundedDelay>(3),
      std::make_shared<SlidingWindow>(100),
      std::make_shared<AsyncLocalSgd>(AsyncLocalOptions{.rounds = {.local_steps = 4}}),
      std::make_shared<ElasticAveraging>(
          ElasticOptions{.exchange = ElasticOptions::Exchange::asynchronous, .alpha = 0.2, .period = 4}),
      std::make_shared<WagmaSgd>(WagmaOptions{.group_size = 2, .global_every = 6})};
  for (const auto& algorithm : algorithms) {
    Parity parity;
    parity.server_takes_steps =
        !dynamic_cast<const ElasticAveraging*>(algorithm.get()) && !dynamic_cast<const WagmaSgd*>(algorithm.get());
    const RunTotals expected = parity.simulated(*algorithm).totals, found = parity.mpi(*algorithm).totals;
    EXPECT_EQ(found.bytes, expected.bytes);
    EXPECT_EQ(found.messages, expected.messages);
    EXPECT_EQ(found.collectives, expected.collectives);
    EXPECT_GT(found.messages, 0);
  }
}

// The clock determines how many gradients join a worker's mean, and how many wait for a next cycle when the run ends.
// A Ringleader that forgot the gradients for next cycles would do so in each of the 20 cycles, not only in the last.
TEST(Parity, RingleaderUsesGradientsOfEveryCycleOnBothClusters) {
  Parity parity;
  const Ringleader algorithm;
  for (const RunTotals& totals : {parity.simulated(algorithm).totals, parity.mpi(algorithm).totals}) {
    const std::int64_t kept = std::accumulate(totals.kept.begin(), totals.kept.end(), std::int64_t{0});
    const std::int64_t dropped = std::accumulate(totals.dropped.begin(), totals.dropped.end(), std::int64_t{0});
    EXPECT_GE(kept, 20 * workers * micro_batches);
    EXPECT_LE(dropped, kept / 8);
  }
}

// A worker takes steps after its answer, until a new model overwrites them. The clock determines the number of these
// steps. After one round all results are equal; after several rounds kept micro-batches and bytes are equal.
TEST(Parity, DecoupledDiLoCoOfAllWorkers) {
  for (const int fragments : {1, 3}) {
    DecoupledOptions options{.minimum_steps = 20, .outer = make_diloco(0.7, 0.6)};
    options.fragments = Fragments(fragments);
    Parity parity;
    const DecoupledDiLoCo one_round(options);
    const Outcome expected = parity.simulated(one_round), found = parity.mpi(one_round);
    EXPECT_EQ(expected.parameters.empty(), session->rank() != workers);
    EXPECT_THAT(found.parameters, testing::Pointwise(testing::FloatNear(1e-5f), expected.parameters));
    EXPECT_EQ(found.totals.kept, expected.totals.kept);
  }
  DecoupledOptions options{.minimum_steps = 5, .outer = make_diloco(0.7, 0.6)};
  for (const auto anchor : {DecoupledOptions::Anchor::server, DecoupledOptions::Anchor::base}) {
    options.anchor = anchor;
    const DecoupledDiLoCo four_rounds(options);
    Parity parity;
    for (const RunTotals& totals : {parity.simulated(four_rounds).totals, parity.mpi(four_rounds).totals}) {
      EXPECT_EQ(totals.kept, (std::vector<std::int64_t>(workers, 20 * micro_batches)));
      EXPECT_EQ(totals.messages, (4 + 3) * workers);
      EXPECT_EQ(totals.bytes, Bytes{(4 + 3) * workers * (4000 + 24)});
      for (const Account& account : totals.accounts) EXPECT_EQ(account.total(), totals.end.time_since_epoch());
    }
  }
  // With fragments, quorums, grace times and late answers, the clock determines who is in which round.
  options = {.quorum = 2,
             .local_steps = Step{4},
             .grace = GraceOptions{.margin = 0.5, .overlap_steps = 4},
             .late = LateAnswers::count,
             .outer = make_diloco(0.7, 0.6)};
  options.fragments = Fragments(4);
  Parity parity;
  for (const RunTotals& totals :
       {parity.simulated(DecoupledDiLoCo(options)).totals, parity.mpi(DecoupledDiLoCo(options)).totals}) {
    EXPECT_GE(std::accumulate(totals.kept.begin(), totals.kept.end(), std::int64_t{0}), 20 * workers * micro_batches);
    for (const Account& account : totals.accounts) EXPECT_EQ(account.total(), totals.end.time_since_epoch());
  }
}

TEST(Parity, KAsyncKeepsAsMuchOnBothClusters) {
  for (const int gradients : {1, 2, 4}) {
    const KAsync algorithm(gradients);
    Parity parity;
    for (const RunTotals& totals : {parity.simulated(algorithm).totals, parity.mpi(algorithm).totals}) {
      EXPECT_EQ(std::accumulate(totals.kept.begin(), totals.kept.end(), std::int64_t{0}), 20 * workers * micro_batches);
      for (const Account& account : totals.accounts) EXPECT_EQ(account.total(), totals.end.time_since_epoch());
    }
  }
}

// The clock determines how many gradients are stopped, but not how many are kept.
TEST(Parity, RingmasterKeepsAsMuchOnBothClustersAndNothingTooOld) {
  for (const auto late : {LateWork::cancel, LateWork::finish}) {
    const Ringmaster algorithm(2, late);
    Parity parity;
    for (const RunTotals& totals : {parity.simulated(algorithm).totals, parity.mpi(algorithm).totals}) {
      EXPECT_EQ(std::accumulate(totals.kept.begin(), totals.kept.end(), std::int64_t{0}), 20 * workers * micro_batches);
      EXPECT_LE(totals.staleness.size(), 2u);
      for (const Account& account : totals.accounts) EXPECT_EQ(account.total(), totals.end.time_since_epoch());
    }
  }
}

}  // namespace syncopate
