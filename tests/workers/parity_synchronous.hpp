// Parity of methods whose workers step along one sum of their gradients.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "algorithms/gradient_coding/gradient_coding.hpp"
#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/quorum/eager_sgd.hpp"
#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/one_bit_adam.hpp"
#include "algorithms/synchronous/random_drop.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/workers/expected_parity.hpp"
#include "workers/training/optimizers.hpp"

namespace syncopate {

TEST(Parity, SynchronousSgd) { expect_parity(SyncSgd()); }

TEST(Parity, CompressedSums) {
  using Kind = CompressionOptions::Kind;
  std::vector<CompressionOptions> all;
  for (const Kind kind : {Kind::top_k, Kind::dgc, Kind::random_k, Kind::scalecom, Kind::sign, Kind::one_bit, Kind::qsgd,
                          Kind::majority, Kind::power, Kind::int8, Kind::fp4}) {
    all.push_back({.kind = kind, .ratio = 0.1});
    all.back().error_feedback = kind != Kind::qsgd && kind != Kind::majority;
    if (kind == Kind::scalecom) all.back().filter = 0.5;
    if (kind == Kind::one_bit) all.back().scope = CompressionOptions::Scope::column;
    if (kind == Kind::dgc) all.back().warmup_ratios = {0.5, 0.25}, all.back().warmup_steps = 5;
    if (!has_two_phases(kind) && kind != Kind::one_bit) continue;
    all.push_back(all.back());
    all.back().pattern = CompressionOptions::Pattern::two_phase;
  }
  all.push_back({.kind = Kind::power});
  all.back().factors = CompressionOptions::Factors::in_turn;
  all.push_back({.kind = Kind::dgc, .ratio = 0.1, .nesterov = true, .clip = 0.5});
  all.push_back({.kind = Kind::one_bit, .scope = CompressionOptions::Scope::column});
  all.back().threshold = CompressionOptions::Threshold::mean;
  all.push_back({.kind = Kind::majority, .zeros_abstain = true});
  all.push_back({.kind = Kind::power, .removed = CompressionOptions::Removed::shared});
  all.push_back({.kind = Kind::power, .warm_start = false});
  all.push_back({.kind = Kind::dgc, .ratio = 0.1, .dense_vectors = true});
  all.push_back({.kind = Kind::top_k, .ratio = 0.1, .units = CompressionOptions::Units::step});
  for (const CompressionOptions& options : all) {
    const Kind kind = options.kind;
    SyncSgd method;
    method.compress(options);
    expect_parity(method, make_sgd({.momentum = kind == Kind::majority ? 0 : 0.9}), tolerance_of(kind));
  }
}

TEST(Parity, FoldedBatchesOfCompressedSums) {
  using Kind = CompressionOptions::Kind;
  CompressionOptions options{.kind = Kind::scalecom, .ratio = 0.1};
  options.dropped = CompressionOptions::Dropped::folded;
  RandomDrop method(0.3, Step{2});
  method.compress(options);
  expect_parity(method);
}

TEST(Parity, OneBitAdam) {
  using Kind = CompressionOptions::Kind;
  for (const Kind kind : {Kind::sign, Kind::random_k}) {
    OneBitAdam method(Step{8});
    CompressionOptions options{.kind = kind, .of_moments = true, .l2_scale = kind == Kind::sign, .ratio = 0.1};
    if (kind == Kind::sign) options.pattern = CompressionOptions::Pattern::two_phase;
    method.compress(options);
    expect_parity(method, make_adamw({.epsilon = 1e-3, .corrects_bias = false, .weight_decay = {}}), 1e-4);
  }
}

// Norms of tensors, of gradients that ranks have reduced and of workers' own, and a mean square that starts at 1.
TEST(Parity, OptimizersOfTheRecipes) {
  const AveragePolicy averaged{.moments = {StatePolicy::average, StatePolicy::average}};
  expect_parity(SyncSgd(), make_lamb({}));
  expect_parity(LocalSgd(make_constant_period(Step{5}), {.average = averaged}), make_lans({}));
  expect_parity(LocalSgd(make_constant_period(Step{5}), {.average = averaged}), make_rmsprop({}));
  expect_parity(BackupWorkers(workers), make_lars({}));
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

// Whose messages make a step is for the clock to say, but the sum that they give is not: cyclic ones, whose weights
// cancel, only if they travel in double precision.
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
