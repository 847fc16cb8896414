// Parity of methods whose workers all step along the sum of their gradients.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "algorithms/gradient_coding/gradient_coding.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/quorum/eager_sgd.hpp"
#include "algorithms/synchronous/acco.hpp"
#include "algorithms/synchronous/delayed_update.hpp"
#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/one_bit_adam.hpp"
#include "algorithms/synchronous/random_drop.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/workers/expected_parity.hpp"
#include "workers/models/matrix_steps.hpp"
#include "workers/training/optimizers.hpp"

namespace syncopate {

TEST(Parity, SynchronousSgd) { expect_parity(SyncSgd()); }

TEST(Parity, CompressedSums) {
  const auto expect_of = [](const CompressionOptions& options) {
    SyncSgd method;
    method.compress(options);
    expect_parity(method, make_sgd({.momentum = options.kind == "majority" ? 0 : 0.9}), tolerance_of(options.kind));
  };
  for (CompressionOptions options :
       {compression("top-k", "ratio = 0.1"),
        compression("top-k", R"(ratio = 0.1, residual = "step")"),
        compression("dgc", "ratio = 0.1, momentum = 0, warmup_ratios = [0.5, 0.25], warmup_steps = 5"),
        compression("dgc", "ratio = 0.1, momentum = 0, nesterov = true, clip = 0.5"),
        compression("dgc", "ratio = 0.1, momentum = 0, dense_vectors = true"),
        compression("random-k", "ratio = 0.1"),
        compression("scalecom", "ratio = 0.1, filter = 0.5"),
        compression("sign"),
        compression("one-bit"),
        compression("qsgd"),
        compression("int8", "error_feedback = true"),
        compression("fp4", "error_feedback = true"),
        compression("bins", "residual_decay = 0.9"),
        compression("tiles", "tile = 8, kept = 4"),
        compression("demo", "tile = 8, kept = 4"),
        compression("one-bit", R"(threshold = "mean")"),
        compression("majority"),
        compression("majority", R"(zeros = "abstain")"),
        compression("powersgd"),
        compression("powersgd", R"(factors = "in-turn")"),
        compression("powersgd", R"(removed = "mean")"),
        compression("powersgd", "warm_start = false")}) {
    expect_of(options);
    if (!has_two_phases(options.kind)) continue;
    options.pattern = CompressionOptions::Pattern::two_phase;
    expect_of(options);
  }
}

// EF21, with one exchange and with two.
TEST(Parity, SumsOfEstimates) {
  for (CompressionOptions options :
       {compression("top-k", "ratio = 0.1"), compression("random-k", "ratio = 0.1"), compression("sign"),
        compression("scalecom", "ratio = 0.1"), compression("powersgd")}) {
    options.feedback = CompressionOptions::Feedback::estimate;
    for (const double momentum : {0.0, 0.7}) {
      options.momentum = momentum;
      SCOPED_TRACE(options.kind);
      SyncSgd method;
      method.compress(options);
      expect_parity(method);
    }
  }
}

TEST(Parity, FoldedBatchesOfCompressedSums) {
  RandomDrop method(0.3, Step{2});
  method.compress(compression("scalecom", R"(ratio = 0.1, dropped = "fold")"));
  expect_parity(method);
}

TEST(Parity, OneBitAdam) {
  for (const std::string_view kind : {"sign", "random-k"}) {
    OneBitAdam method(Step{8});
    method.compress(compression(kind, Compresses::moments, 0.1));
    expect_parity(method, make_adamw({.epsilon = 1e-3, .corrects_bias = false, .weight_decay = {}}), 1e-4);
  }
}

// Optimizers that use norms of tensors, on gradients that ranks have reduced and on workers' own gradients. The mean
// square of RMSProp starts at 1.
TEST(Parity, OptimizersOfTheRecipes) {
  const AveragePolicy averaged{.moments = {StatePolicy::average, StatePolicy::average}};
  expect_parity(SyncSgd(), make_lamb({}));
  expect_parity(LocalSgd(make_constant_period(Step{5}), {.average = averaged}), make_lans({}));
  expect_parity(LocalSgd(make_constant_period(Step{5}), {.average = averaged}), make_rmsprop({}));
  expect_parity(BackupWorkers(workers), make_lars({}));
  expect_parity(SyncSgd(), make_muon({.all_matrices = true}, orthogonalise_by_torch));
  expect_parity(SyncSgd(), make_dion({.rank_share = 0.5, .all_matrices = true}, iterate_power_by_torch));
  AveragePolicy all_averaged;
  all_averaged.moments.fill(StatePolicy::average);
  const auto gpa = [] { return make_averaged({.base = AveragedOptions::Base::adamw, .kept_of_x = 0.9}); };
  expect_parity(BackupWorkers(workers), gpa());
  expect_parity(LocalSgd(make_constant_period(Step{5}), {.average = all_averaged}), gpa());
  expect_parity(LocalSgd(make_constant_period(Step{5}), {.average = averaged}), make_averaged({}));
}

// The clock determines how many micro-batches fit into an all-reduce, but all of them are used. On a busy machine
// all-reduces take longer, so more micro-batches fit into them, up to the ratio of wall time to simulated time.
TEST(Parity, AccoKeepsAsMuchOnBothClusters) {
  const Acco acco(1);
  const DelayedUpdate delayed(2), as_published(1, DelayedUpdate::Cleared::every_second_step);
  for (const Algorithm* algorithm : {static_cast<const Algorithm*>(&acco), static_cast<const Algorithm*>(&delayed),
                                     static_cast<const Algorithm*>(&as_published)}) {
    Parity parity;
    const RunTotals expected = parity.simulated(*algorithm).totals, found = parity.mpi(*algorithm).totals;
    EXPECT_EQ(found.bytes, expected.bytes);
    EXPECT_EQ(found.collectives, expected.collectives);
    EXPECT_EQ(found.dropped, expected.dropped);
    const auto kept = [](const RunTotals& totals) {
      return static_cast<double>(std::accumulate(totals.kept.begin(), totals.kept.end(), std::int64_t{0}));
    };
    const double slowdown = std::max(1.0, to_seconds(found.end) / to_seconds(expected.end));
    EXPECT_GE(kept(found), 0.85 * kept(expected));
    EXPECT_LE(kept(found), 1.15 * slowdown * kept(expected));
    if (session->rank() == 0)
      std::printf("kept %g and %g, simulated %.4f s, wall %.4f s\n", kept(expected), kept(found),
                  to_seconds(expected.end), to_seconds(found.end));
  }
}

TEST(Parity, DropComputeWithoutAThreshold) { expect_parity(DropCompute(longest_duration, Preempt::discard, 1.0 / 3)); }

TEST(Parity, DropComputeWithALargerBatchDividedByWhatWasComputed) {
  expect_parity(DropCompute({.threshold = make_fixed_threshold(longest_duration),
                             .normalisation = DropComputeOptions::Normalisation::computed,
                             .compensation = make_larger_batch(0.5)}));
}

TEST(Parity, EagerSgdWhoseModelsAreAveragedAfterEachRound) {
  expect_parity(EagerSgd({.activation = EagerOptions::Activation::majority, .average_every = 1}));
}

TEST(Parity, RandomDrop) { expect_parity(RandomDrop(0.3, Step{2})); }

TEST(Parity, DropComputeWithALargerBatchThatIsMetOnAverage) {
  expect_parity(
      DropCompute({.threshold = make_fixed_threshold(longest_duration), .compensation = make_larger_batch(0.25)}));
}

// The clock determines which workers' messages make a step, but not their decoded sum. Cyclic codes have weights that
// cancel, so their messages must be in double precision.
inline void expect_equal_parameters(const Algorithm& algorithm) {
  Parity parity;
  const Outcome expected = parity.simulated(algorithm);
  const Outcome found = parity.mpi(algorithm);
  ASSERT_EQ(found.parameters.size(), expected.parameters.size());
  double norm = 0;
  for (const float value : expected.parameters) norm = std::max(norm, std::abs(static_cast<double>(value)));
  for (std::size_t i = 0; i < expected.parameters.size(); ++i)
    ASSERT_NEAR(found.parameters[i], expected.parameters[i], 1e-5 * norm);
}

TEST(Parity, GradientCodes) {
  expect_equal_parameters(CodedSgd(fractional_repetition(workers, 1), LateWork::finish));
  expect_equal_parameters(CodedSgd(*cyclic_repetition(workers, 1, 1), LateWork::finish));
  expect_equal_parameters(CodedSgd(*cyclic_repetition(workers, 2, 1), LateWork::cancel));
}

TEST(Parity, EagerSgdWithEveryRoundSynchronous) {
  expect_parity(EagerSgd({.synchronous_every = 1}));
  expect_parity(EagerSgd({.activation = EagerOptions::Activation::majority, .synchronous_every = 1}));
}

TEST(Parity, EagerSgdLosesNothingOnEitherClusterWhereLateGradientsAreAccumulated) {
  for (const auto activation : {EagerOptions::Activation::solo, EagerOptions::Activation::majority}) {
    const EagerSgd algorithm({.activation = activation, .synchronous_every = 10});  // the last round is synchronous
    Parity parity;
    for (const RunTotals& totals : {parity.simulated(algorithm).totals, parity.mpi(algorithm).totals}) {
      EXPECT_EQ(totals.dropped, std::vector<std::int64_t>(workers, 0));
      EXPECT_GE(std::accumulate(totals.kept.begin(), totals.kept.end(), std::int64_t{0}), 20 * micro_batches);
      for (const Account& account : totals.accounts) EXPECT_EQ(account.total(), totals.end.time_since_epoch());
    }
  }
}

}  // namespace syncopate
