// Parity of methods whose steps wait for some of the workers only.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "algorithms/quorum/backup_all_reduce.hpp"
#include "algorithms/quorum/backup_tokens.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/quorum/dynamic_backup.hpp"
#include "algorithms/quorum/k_batch_sync.hpp"
#include "algorithms/quorum/malenia.hpp"
#include "algorithms/quorum/mindflayer.hpp"
#include "algorithms/quorum/stsyn.hpp"
#include "tests/workers/expected_parity.hpp"

namespace syncopate {

TEST(Parity, BackupWorkersWithoutBackups) { expect_parity(BackupWorkers(workers)); }

TEST(Parity, BackupWorkersInOtherFormsWithoutBackups) {
  expect_parity(BackupWorkers(workers, {.late = LateWork::cancel}));
  expect_parity(BackupTokens(workers, 0));
  expect_parity(BackupAllReduce(workers));
}

// The clock determines which gradients are late, but not how many make a step.
TEST(Parity, BackupWorkersKeepAsManyGradientsPerStepOnBothClusters) {
  constexpr int quorum = workers - 1;
  const std::vector<std::shared_ptr<const Algorithm>> algorithms = {
      std::make_shared<BackupWorkers>(quorum),
      std::make_shared<BackupWorkers>(quorum, BackupOptions{.late = LateWork::cancel}),
      std::make_shared<BackupTokens>(quorum), std::make_shared<BackupAllReduce>(quorum)};
  for (const auto& algorithm : algorithms) {
    Parity parity;
    for (const RunTotals& totals : {parity.simulated(*algorithm).totals, parity.mpi(*algorithm).totals}) {
      EXPECT_EQ(std::accumulate(totals.kept.begin(), totals.kept.end(), std::int64_t{0}), 20 * quorum * micro_batches);
      for (const Account& account : totals.accounts) EXPECT_EQ(account.total(), totals.end.time_since_epoch());
    }
  }
}

// The clock determines which workers' gradients make a step, but not how many.
TEST(Parity, KBatchSyncKeepsAsMuchOnBothClusters) {
  for (const int gradients : {1, 4, 8}) {
    const KBatchSync algorithm(gradients);
    Parity parity;
    for (const RunTotals& totals : {parity.simulated(algorithm).totals, parity.mpi(algorithm).totals}) {
      EXPECT_EQ(std::accumulate(totals.kept.begin(), totals.kept.end(), std::int64_t{0}), 20 * workers * micro_batches);
      for (const Account& account : totals.accounts) EXPECT_EQ(account.total(), totals.end.time_since_epoch());
    }
  }
}

TEST(Parity, MaleniaUsesOneGradientOfEachWorkerOrMore) {
  Parity parity;
  const Malenia algorithm;
  for (const RunTotals& totals : {parity.simulated(algorithm).totals, parity.mpi(algorithm).totals})
    for (const std::int64_t kept : totals.kept) EXPECT_GE(kept, 20 * micro_batches);
}

TEST(Parity, MindflayerWhoseTrialsAreAllDoneInTime) {
  MindflayerOptions options{.usual = {.count = 2, .limit = from_seconds(60), .arrival_probability = 0.9}};
  options.of_workers[1] = {.count = 4, .limit = from_seconds(90), .arrival_probability = 0.8};
  expect_parity(Mindflayer(options));
}

TEST(Parity, ClippingRennalaKeepsAsMuchOnBothClustersWhereAllIsDoneInTime) {
  const ClippingRennala algorithm({.trials = 5, .limit = from_seconds(60)});
  Parity parity;
  for (const RunTotals& totals : {parity.simulated(algorithm).totals, parity.mpi(algorithm).totals}) {
    EXPECT_EQ(std::accumulate(totals.kept.begin(), totals.kept.end(), std::int64_t{0}), 20 * workers * micro_batches);
    for (const Account& account : totals.accounts) EXPECT_EQ(account.total(), totals.end.time_since_epoch());
  }
}

// All workers are in the quorum and stop after five steps, so the clock has no effect.
TEST(Parity, StsynOfAllWorkersThatStopAfterTheirSteps) {
  expect_parity(Stsyn({.quorum = workers, .local_steps = 5, .most_steps = 5}));
}

// The clock determines how many steps each worker takes. The budget counts the steps of all.
TEST(Parity, StsynComesToTheEndOfItsBudgetOnBothClusters) {
  for (const int quorum : {1, 3}) {
    const Stsyn algorithm({.quorum = quorum, .local_steps = 4});
    Parity parity;
    for (const RunTotals& totals : {parity.simulated(algorithm).totals, parity.mpi(algorithm).totals}) {
      EXPECT_GE(std::accumulate(totals.kept.begin(), totals.kept.end(), std::int64_t{0}), 20 * workers * micro_batches);
      EXPECT_EQ(totals.collectives, 0);
      for (const Account& account : totals.accounts) EXPECT_EQ(account.total(), totals.end.time_since_epoch());
    }
  }
}

TEST(Parity, DynamicBackupThatWaitsForAll) { expect_parity(DynamicBackup({.fewest = workers})); }

TEST(Parity, BackupTimeoutThatNobodyIsLateFor) {
  expect_parity(BackupWorkers(workers, {.timeout = from_seconds(60)}));
  expect_parity(BackupWorkers(
      workers,
      {.late = LateWork::cancel, .timeout = from_seconds(60), .counted_from = BackupOptions::CountedFrom::first}));
}

// Three workers and two servers. Worker 0 ends with the whole model.
TEST(Parity, BackupWorkersWithTwoServers) {
  class Watched : public BackupWorkers {
   public:
    Watched(int quorum, Training& training) : BackupWorkers(quorum, {.servers = 2}), training_(training) {}
    void run(Worker& worker) const override {
      BackupWorkers::run(worker);
      if (worker.rank() == Rank{0}) parameters = training_.values(worker.model());
    }
    mutable std::vector<float> parameters;

   private:
    Training& training_;
  };
  for (const int quorum : {3, 2}) {
    Parity parity;
    const Watched algorithm(quorum, parity.training);
    SimulatedCluster simulated({.workers = 3,
                                .servers = 2,
                                .micro_batches = micro_batches,
                                .compute_time = parity.compute_time,
                                .network = *parity.network,
                                .training = parity.training});
    const RunTotals expected = parity.run(simulated, algorithm).totals;
    const auto expected_parameters = std::exchange(algorithm.parameters, {});
    const auto made = make_mpi_cluster({.workers = 3,
                                        .servers = 2,
                                        .compute_time = parity.compute_time,
                                        .training = parity.training,
                                        .session = *session});
    Cluster& mpi = *made;
    const RunTotals found = parity.run(mpi, algorithm).totals;
    for (const RunTotals& totals : {expected, found}) {
      EXPECT_EQ(std::accumulate(totals.kept.begin(), totals.kept.end(), std::int64_t{0}), 20 * quorum * micro_batches);
      for (const Account& account : totals.accounts) EXPECT_EQ(account.total(), totals.end.time_since_epoch());
    }
    if (session->rank() > 0 || quorum < 3) continue;
    ASSERT_EQ(algorithm.parameters.size(), expected_parameters.size());
    for (std::size_t i = 0; i < expected_parameters.size(); ++i)
      ASSERT_NEAR(algorithm.parameters[i], expected_parameters[i], 1e-5 * (1 + std::abs(expected_parameters[i])));
  }
}

}  // namespace syncopate
