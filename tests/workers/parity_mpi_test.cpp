// The same algorithm on both clusters: where control does not depend on the clock the parameters and counts agree, and
// no run is faster than its delays. That wall time is no more than simulated time, on a quiet machine, is for
// parity_time_mpi_test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "algorithms/asynchronous/async_local_sgd.hpp"
#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/asynchronous/bounded_delay.hpp"
#include "algorithms/asynchronous/halos.hpp"
#include "algorithms/asynchronous/k_async.hpp"
#include "algorithms/asynchronous/ringmaster.hpp"
#include "algorithms/asynchronous/sliding_window.hpp"
#include "algorithms/asynchronous/softsync.hpp"
#include "algorithms/asynchronous/stale_synchronous.hpp"
#include "algorithms/asynchronous/throttle.hpp"
#include "algorithms/gossip/ad_psgd.hpp"
#include "algorithms/gossip/decentralized_sgd.hpp"
#include "algorithms/gossip/stochastic_gradient_push.hpp"
#include "algorithms/gossip/wagma_sgd.hpp"
#include "algorithms/gradient_coding/coded_sgd.hpp"
#include "algorithms/gradient_coding/cyclic_repetition.hpp"
#include "algorithms/gradient_coding/fractional_repetition.hpp"
#include "algorithms/local_sgd/adacomm.hpp"
#include "algorithms/local_sgd/branch_train_merge.hpp"
#include "algorithms/local_sgd/co2.hpp"
#include "algorithms/local_sgd/cocod_sgd.hpp"
#include "algorithms/local_sgd/decoupled_diloco.hpp"
#include "algorithms/local_sgd/des_loc.hpp"
#include "algorithms/local_sgd/drop_local_sgd.hpp"
#include "algorithms/local_sgd/dynamic_averaging.hpp"
#include "algorithms/local_sgd/edit.hpp"
#include "algorithms/local_sgd/elastic_averaging.hpp"
#include "algorithms/local_sgd/hierarchical_sgd.hpp"
#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/local_sgd/outer_local_sgd.hpp"
#include "algorithms/local_sgd/overlap_local_sgd.hpp"
#include "algorithms/local_sgd/overlapped_outer.hpp"
#include "algorithms/local_sgd/palsgd.hpp"
#include "algorithms/local_sgd/streaming_diloco.hpp"
#include "algorithms/quorum/backup_all_reduce.hpp"
#include "algorithms/quorum/backup_timeout.hpp"
#include "algorithms/quorum/backup_tokens.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/quorum/dynamic_backup.hpp"
#include "algorithms/quorum/eager_sgd.hpp"
#include "algorithms/quorum/k_batch_sync.hpp"
#include "algorithms/quorum/mindflayer.hpp"
#include "algorithms/quorum/stsyn.hpp"
#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/one_bit_adam.hpp"
#include "algorithms/synchronous/random_drop.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/workers/mpi_test_main.hpp"
#include "tests/workers/parity.hpp"
#include "workers/mpi/mpi_cluster.hpp"
#include "workers/simulated/simulated_cluster.hpp"
#include "workers/training/lamb.hpp"
#include "workers/training/lans.hpp"
#include "workers/training/lars.hpp"
#include "workers/training/rmsprop.hpp"

namespace syncopate {
namespace {

void expect_parity(const Algorithm& algorithm, std::shared_ptr<const Optimizer> optimizer = make_sgd({.momentum = 0.9}),
                   double tolerance = 1e-5) {
  ASSERT_EQ(session->size(), workers + 1) << "start this test with mpirun -n 5: one rank serves, or is idle";
  Parity parity(1e-6, 50e-6, std::move(optimizer));
  const Outcome expected = parity.simulated(algorithm);
  const Outcome found = parity.mpi(algorithm);
  const int holder = algorithm.traits().servers > 0 ? workers : std::min(session->rank(), workers - 1);
  EXPECT_EQ(expected.parameters.empty(), session->rank() != holder);
  ASSERT_EQ(found.parameters.size(), expected.parameters.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < expected.parameters.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(found.parameters[i]) - expected.parameters[i]));
    norm = std::max(norm, std::abs(static_cast<double>(expected.parameters[i])));
  }
  EXPECT_LE(difference, tolerance * norm);
  EXPECT_GE(to_seconds(found.totals.end), least_s(algorithm));
  EXPECT_EQ(found.totals.bytes, expected.totals.bytes);
  EXPECT_EQ(found.totals.collectives, expected.totals.collectives);
  EXPECT_EQ(found.totals.messages, expected.totals.messages);
  EXPECT_EQ(found.totals.kept, expected.totals.kept);
  EXPECT_EQ(found.totals.dropped, expected.totals.dropped);
  if (session->rank() == 0)
    std::printf("largest difference %.1e of %.2g; simulated %.4f s, wall %.4f s\n", difference, norm,
                to_seconds(expected.totals.end), to_seconds(found.totals.end));
}

TEST(Parity, SynchronousSgd) { expect_parity(SyncSgd()); }

using Kind = CompressionOptions::Kind;

// What rounding has moved by the last bit may fall into the next bin.
double tolerance_of(Kind kind) { return kind == Kind::int8 ? 2e-4 : 1e-5; }
bool has_two_phases(Kind kind) {
  return kind == Kind::sign || kind == Kind::qsgd || kind == Kind::int8 || kind == Kind::fp4;
}

TEST(Parity, CompressedSums) {
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
  for (const CompressionOptions& options : all) {
    const Kind kind = options.kind;
    SyncSgd method;
    method.compress(options);
    expect_parity(method, make_sgd({.momentum = kind == Kind::majority ? 0 : 0.9}), tolerance_of(kind));
  }
}

TEST(Parity, FoldedBatchesOfCompressedSums) {
  CompressionOptions options{.kind = CompressionOptions::Kind::scalecom, .ratio = 0.1};
  options.dropped = CompressionOptions::Dropped::folded;
  RandomDrop method(0.3, Step{2});
  method.compress(options);
  expect_parity(method);
}

TEST(Parity, OneBitAdam) {
  for (const Kind kind : {Kind::sign, Kind::random_k}) {
    OneBitAdam method(Step{8});
    CompressionOptions options{.kind = kind, .of_moments = true, .l2_scale = kind == Kind::sign, .ratio = 0.1};
    if (kind == Kind::sign) options.pattern = CompressionOptions::Pattern::two_phase;
    method.compress(options);
    expect_parity(method, make_adamw({.epsilon = 1e-3, .corrects_bias = false, .weight_decay = {}}), 1e-4);
  }
}

// Waited for, in one phase or two, and beside the next round.
TEST(Parity, CompressedAverages) {
  for (const Kind kind : {Kind::top_k, Kind::random_k, Kind::sign, Kind::qsgd, Kind::int8, Kind::fp4}) {
    CompressionOptions options{.kind = kind, .of_averages = true, .ratio = 0.1};
    options.error_feedback = kind != Kind::qsgd;
    SCOPED_TRACE(static_cast<int>(kind));
    CocodSgd overlapped(make_constant_period(Step{5}), {});
    overlapped.compress(options);
    expect_parity(overlapped, make_sgd({.momentum = 0.9}), tolerance_of(kind));
    OuterLocalSgd waiting(make_constant_period(Step{5}), make_diloco(0.7, 0.5), {});
    waiting.compress(options);
    expect_parity(waiting, make_sgd({.momentum = 0.9}), tolerance_of(kind));
    if (!has_two_phases(kind)) continue;
    options.pattern = CompressionOptions::Pattern::two_phase;
    waiting.compress(options);
    expect_parity(waiting, make_sgd({.momentum = 0.9}), tolerance_of(kind));
  }
}

TEST(Parity, CompressedFragments) {
  for (const Kind kind : {Kind::top_k, Kind::random_k, Kind::sign, Kind::qsgd, Kind::int8, Kind::fp4}) {
    CompressionOptions options{.kind = kind, .of_averages = true, .ratio = 0.1};
    options.error_feedback = kind != Kind::qsgd;
    SCOPED_TRACE(static_cast<int>(kind));
    StreamingDiloco method(make_constant_period(Step{6}), make_diloco(0.7, 0.5), {Fragments(3), Step{2}, 0.3}, {});
    method.compress(options);
    expect_parity(method, make_sgd({.momentum = 0.9}), tolerance_of(kind));
  }
}

// Servers that wait for all, so that who comes first only decides the order of a sum; answers to what was sent too.
TEST(Parity, CompressedMessages) {
  for (const Kind kind : {Kind::top_k, Kind::random_k, Kind::sign, Kind::qsgd, Kind::int8, Kind::fp4}) {
    CompressionOptions options{.kind = kind, .of_messages = true, .ratio = 0.1};
    options.error_feedback = kind != Kind::qsgd;
    options.returns_rejected = kind == Kind::top_k;
    SCOPED_TRACE(static_cast<int>(kind));
    BackupWorkers gradients(workers);
    gradients.compress(options);
    expect_parity(gradients, make_sgd({.momentum = 0.9}), tolerance_of(kind));
    AsyncLocalOptions local{.local_steps = 5, .grace = from_seconds(1e6)};
    local.update = make_buffered_update({.size = workers, .rate = 0.7, .momentum = 0.6});
    AsyncLocalSgd differences(local);
    differences.compress(options);
    expect_parity(differences, make_sgd({.momentum = 0.9}), tolerance_of(kind));
  }
}

TEST(Parity, LocalSgdWithAConstantPeriod) { expect_parity(LocalSgd(make_constant_period(Step{5}), {})); }

TEST(Parity, LocalSgdWithTheQuadraticRuleAndAveragedMomentum) {
  expect_parity(LocalSgd(make_power_period({.power = 2, .coefficient = 0.05, .minimum = Step{2}}),
                         {.average = {.moments = {StatePolicy::average, StatePolicy::average}}}));
}

// Moments alone, with the parameters, and both at once.
TEST(Parity, MomentsWithPeriodsOfTheirOwn) {
  expect_parity(DesLoc(4, {Step{12}, Step{24}}), make_adamw({}));
  expect_parity(DesLoc(4, {Step{3}, Step{6}}), make_adamw({}));
  expect_parity(DesLoc(6, {Step{4}, MomentSchedule::never}));
}

TEST(Parity, PeriodsByTheLoss) {
  expect_parity(AdaComm({.period = {.initial = 6}}));
  expect_parity(AdaComm({.period = {.initial = 6}, .interval_steps = 8}));
  expect_parity(AdaComm({.period = {.initial = 9, .form = LossPeriod::Form::paddle, .follows_rate = true}}));
}

// Norms of tensors, of gradients that ranks have reduced and of workers' own, and a mean square that starts at 1.
TEST(Parity, OptimizersOfTheRecipes) {
  const AveragePolicy averaged{.moments = {StatePolicy::average, StatePolicy::average}};
  expect_parity(SyncSgd(), make_lamb({}));
  expect_parity(LocalSgd(make_constant_period(Step{5}), {.average = averaged}), make_lans({}));
  expect_parity(LocalSgd(make_constant_period(Step{5}), {.average = averaged}), make_rmsprop({}));
  expect_parity(BackupWorkers(workers), make_lars({}));
}

TEST(Parity, BackupWorkersWithoutBackups) { expect_parity(BackupWorkers(workers)); }

TEST(Parity, BoundedDelayWithoutDelay) { expect_parity(BoundedDelay(0)); }

TEST(Parity, ASlidingWindowInWhichTheWorkersTakeTurns) { expect_parity(SlidingWindow(0)); }

// A window that waits for all, however long: who comes first then only decides the order of a sum.
TEST(Parity, AsynchronousLocalSgdInAWindowOfAll) {
  AsyncLocalOptions options{.local_steps = 5, .grace = from_seconds(1e6)};
  options.update = make_buffered_update({.size = workers, .rate = 0.7, .momentum = 0.6});
  expect_parity(AsyncLocalSgd(options));
  options.moments = StatePolicy::reset;
  options.update = make_delayed_nesterov_update({.rate = 0.7, .momentum = 0.6, .every = workers});
  expect_parity(AsyncLocalSgd(options));
}

// One region of a worker: nothing depends on who comes first.
TEST(Parity, HalosOfOneWorker) {
  for (const double mixing : {0.0, 0.25, 1.0}) {
    const Halos algorithm({.rounds = {.local_steps = 2},
                           .local_update = make_delayed_nesterov_update({.rate = 0.8, .momentum = 0.6, .every = 2}),
                           .global_update = make_nesterov_update(0.7, 0.5),
                           .merge_every = 2,
                           .mixing = mixing});
    Parity parity;
    const Servers servers = algorithm.traits().servers;
    SimulatedCluster simulated({.workers = 1,
                                .servers = servers,
                                .micro_batches = micro_batches,
                                .compute_time = parity.compute_time,
                                .network = *parity.network,
                                .training = parity.training});
    const Outcome expected = parity.run(simulated, algorithm);
    MpiCluster mpi({.workers = 1,
                    .servers = servers,
                    .compute_time = parity.compute_time,
                    .training = parity.training,
                    .session = *session});
    const Outcome found = parity.run(mpi, algorithm);
    EXPECT_EQ(found.totals.bytes, expected.totals.bytes);
    EXPECT_EQ(found.totals.messages, expected.totals.messages);
    EXPECT_EQ(found.totals.kept, expected.totals.kept);
    EXPECT_EQ(found.totals.staleness, expected.totals.staleness);
    EXPECT_EQ(expected.parameters.empty(), session->rank() == 0 || session->rank() > 2);
    ASSERT_EQ(found.parameters.size(), expected.parameters.size());
    for (std::size_t i = 0; i < found.parameters.size(); ++i)
      ASSERT_NEAR(found.parameters[i], expected.parameters[i], 1e-5 * (1 + std::abs(expected.parameters[i])));
  }
}

// Two regions of a worker each, and one of three: who comes first is for the clock to say, but everything is told.
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
    MpiCluster mpi({.workers = workers_here,
                    .servers = servers,
                    .compute_time = parity.compute_time,
                    .training = parity.training,
                    .session = *session});
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

TEST(Parity, DropComputeInsideLocalSgdWithoutAThreshold) {
  for (const auto clock : {DropLocalOptions::Clock::period, DropLocalOptions::Clock::step})
    expect_parity(DropLocalSgd(make_constant_period(Step{5}), {.clock = clock}));
}

TEST(Parity, SynchronousElasticAveraging) { expect_parity(ElasticAveraging({.alpha = 0.2, .period = 2})); }

TEST(Parity, OuterOptimizers) {
  expect_parity(OuterLocalSgd(make_constant_period(Step{6}), make_slowmo(0.9, 0.5), {}));
  expect_parity(OuterLocalSgd(make_constant_period(Step{6}), make_diloco(0.7, 0.9), {}));
  expect_parity(PalSgd(make_constant_period(Step{6}), make_diloco(0.7, 0.9), {.probability = 0.3}));
}

// The norms are those of a model in single precision, so that outliers must not be close to the threshold.
TEST(Parity, PenalisedPseudoGradients) {
  for (const auto scope : {EditOptions::Scope::tensor, EditOptions::Scope::model}) {
    EditOptions options{.scope = scope,
                        .penalty = {.outlier_factor = 1.5,
                                    .outlier_warmup = 2,
                                    .outlier_smoothing = 0.5,
                                    .temperature = 2,
                                    .clip_norm = 3},
                        .period = make_constant_period(Step{3}),
                        .outer = make_diloco(0.7, 0.8)};
    expect_parity(Edit(options));
    options.period = nullptr;  // by a time that does not pass: one round
    options.timed.length = longest_duration;
    options.timed.warmup_steps = Step{4};
    options.penalty.step_share = 0.5;
    expect_parity(Edit(options));
  }
}

// Who has done how many steps by then is for the clock to say.
TEST(Parity, EditByTimeOffersAsMuchOnBothClusters) {
  const Edit algorithm({.timed = {.length = from_seconds(0.15)}, .outer = make_diloco(0.7, 0.8)});
  Parity parity;
  for (const RunTotals& totals : {parity.simulated(algorithm).totals, parity.mpi(algorithm).totals}) {
    for (std::size_t i = 0; i < workers; ++i) EXPECT_EQ(totals.kept[i] + totals.dropped[i], 20 * micro_batches);
    EXPECT_GE(totals.collectives, 2 * 2);
    for (const Account& account : totals.accounts) EXPECT_EQ(account.total(), totals.end.time_since_epoch());
  }
}

TEST(Parity, AveragesOneRoundLate) {
  using Update = OverlappedOuterOptions::Update;
  using Averaged = OverlappedOuterOptions::Averaged;
  const std::shared_ptr<const SyncPeriod> every_6 = make_constant_period(Step{6});
  const std::shared_ptr<const OuterOptimizer> diloco = make_diloco(0.7, 0.9), heavy_ball = make_heavy_ball(1, 0.5, 1);
  expect_parity(CocodSgd(every_6, {}));
  expect_parity(OverlapLocalSgd(every_6, {.mixing = 0.6, .momentum = 0.5}, {}));
  expect_parity(OverlappedOuter(every_6, diloco, {.update = Update::eager}, {}));
  expect_parity(OverlappedOuter(every_6, diloco, {.update = Update::delayed}, {}));
  expect_parity(OverlappedOuter(every_6, heavy_ball, {Update::delayed, Averaged::models}, {}));
}

TEST(Parity, FragmentsThatAreAveragedInTurn) {
  const std::shared_ptr<const SyncPeriod> every_6 = make_constant_period(Step{6});
  const std::shared_ptr<const OuterOptimizer> diloco = make_diloco(0.7, 0.9), slowmo = make_slowmo(0.9, 0.5);
  expect_parity(StreamingDiloco(every_6, diloco, {Fragments(3), Step{0}, 0}, {}));
  expect_parity(StreamingDiloco(every_6, diloco, {Fragments(2), Step{2}, 0.5}, {}));
  expect_parity(StreamingDiloco(every_6, slowmo, {Fragments(4), Step{5}, 0}, {}));
}

TEST(Parity, HierarchicalSgdWithGroupsOfTwoAndOfThreeAndOne) {
  for (const int group_size : {2, 3})
    expect_parity(
        HierarchicalSgd({.group_size = group_size, .group_period = Step{2}, .period = make_constant_period(Step{8})}));
}

TEST(Parity, BranchTrainMerge) {
  expect_parity(BranchTrainMerge(Step{5}, Merge::average, {}));
  expect_parity(BranchTrainMerge(Step{5}, Merge::ensemble, {}));
}

TEST(Parity, GatheredDynamicAveraging) {
  expect_parity(DynamicAveraging({.threshold = 8.0, .check_every = 2, .checks = DynamicOptions::Checks::gathered}));
}

TEST(Parity, PostLocalSgdAndSwap) {
  expect_parity(LocalSgd(make_post_local_period(Step{8}, Step{4}), {}));
  expect_parity(LocalSgd(make_swap_period(Step{8}), {}));
  const AveragePolicy averaged{.moments = {StatePolicy::average, StatePolicy::average}};
  expect_parity(LocalSgd(make_post_local_period(Step{8}, Step{4}), {.average = averaged}), make_adamw({}));
}

TEST(Parity, DropComputeWithALargerBatchThatIsMetOnAverage) {
  expect_parity(
      DropCompute({.threshold = make_fixed_threshold(longest_duration), .compensation = make_larger_batch(0.25)}));
}

TEST(Parity, DecentralizedSgdOnARing) { expect_parity(DecentralizedSgd()); }

TEST(Parity, DecentralizedSgdOnTheCompleteGraph) {
  expect_parity(DecentralizedSgd(OwnModels::mean, complete_graph(workers)));
}

TEST(Parity, StochasticGradientPush) { expect_parity(StochasticGradientPush()); }

TEST(Parity, StochasticGradientPushToSeveral) {
  expect_parity(StochasticGradientPush({.graph = exponential_graph(workers)}));
}

// Whose messages make a step is for the clock to say, but the sum that they give is not: cyclic ones, whose weights
// cancel, only if they travel in double precision.
void expect_equal_parameters(const Algorithm& algorithm) {
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

TEST(Parity, BackupWorkersInOtherFormsWithoutBackups) {
  expect_parity(BackupWorkers(workers, {.late = BackupOptions::Late::cancel}));
  expect_parity(BackupTokens(workers, 0));
  expect_parity(BackupAllReduce(workers));
}

TEST(Parity, EagerSgdWithEveryRoundSynchronous) {
  expect_parity(EagerSgd({.synchronous_every = 1}));
  expect_parity(EagerSgd({.activation = EagerOptions::Activation::majority, .synchronous_every = 1}));
}

// Who is late is for the clock to say, but not how many gradients make a step.
TEST(Parity, BackupWorkersKeepAsManyGradientsPerStepOnBothClusters) {
  constexpr int quorum = workers - 1;
  const std::vector<std::shared_ptr<const Algorithm>> algorithms = {
      std::make_shared<BackupWorkers>(quorum),
      std::make_shared<BackupWorkers>(quorum, BackupOptions{.late = BackupOptions::Late::cancel}),
      std::make_shared<BackupTokens>(quorum), std::make_shared<BackupAllReduce>(quorum)};
  for (const auto& algorithm : algorithms) {
    Parity parity;
    for (const RunTotals& totals : {parity.simulated(*algorithm).totals, parity.mpi(*algorithm).totals}) {
      EXPECT_EQ(std::accumulate(totals.kept.begin(), totals.kept.end(), std::int64_t{0}), 20 * quorum * micro_batches);
      for (const Account& account : totals.accounts) EXPECT_EQ(account.total(), totals.end.time_since_epoch());
    }
  }
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

// Whose gradient comes when is for the clock to say, but not how many come and are answered before the end.
TEST(Parity, AsynchronousMethodsSendAsMuchOnBothClusters) {
  const std::vector<std::shared_ptr<const Algorithm>> algorithms = {
      std::make_shared<AsyncSgd>(AsyncSgd::Options{}),
      std::make_shared<Softsync>(2),
      std::make_shared<Softsync>(Softsync::of_gradients(8)),
      std::make_shared<Ringmaster>(1000),
      std::make_shared<Throttle>(ThrottleOptions{.divisor = 4}),
      std::make_shared<StaleSynchronous>(100),
      std::make_shared<BoundedDelay>(3),
      std::make_shared<SlidingWindow>(100),
      std::make_shared<AsyncLocalSgd>(AsyncLocalOptions{.local_steps = 4}),
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

// Whose gradients make a step is for the clock to say.
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

TEST(Parity, MindflayerKeepsAsMuchOnBothClustersWhereAllIsDoneInTime) {
  const Mindflayer algorithm({.trials = 5, .limit = from_seconds(60)});
  Parity parity;
  for (const RunTotals& totals : {parity.simulated(algorithm).totals, parity.mpi(algorithm).totals}) {
    EXPECT_EQ(std::accumulate(totals.kept.begin(), totals.kept.end(), std::int64_t{0}), 20 * workers * micro_batches);
    for (const Account& account : totals.accounts) EXPECT_EQ(account.total(), totals.end.time_since_epoch());
  }
}

// With all workers, and no step beyond U, no clock has a say in it.
TEST(Parity, StsynOfAllWorkersThatStopAfterTheirSteps) {
  expect_parity(Stsyn({.quorum = workers, .local_steps = 5, .most_steps = 5}));
}

// Who has done how much is for the clock to say; the budget is one of what all have done.
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

// Where all rounds are global nobody is late.
TEST(Parity, WagmaSgdOfGlobalRounds) {
  const WagmaSgd algorithm({.group_size = 2, .global_every = 1});
  Parity parity;
  parity.server_takes_steps = false;
  const Outcome expected = parity.simulated(algorithm), found = parity.mpi(algorithm);
  ASSERT_EQ(found.parameters.size(), expected.parameters.size());
  for (std::size_t i = 0; i < expected.parameters.size(); ++i)
    EXPECT_NEAR(found.parameters[i], expected.parameters[i], 1e-5) << i;
}

// What a worker does between its answer and the new model is for the clock to say, and is overwritten: of one round all
// is equal, of several what is kept and sent.
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
  // With fragments, quorums, grace and late answers who is in which round is for the clock to say.
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

// Whose models are mixed when, too. In the end all have taken their steps, and nobody waits for who has left.
TEST(Parity, AdPsgdKeepsAsMuchOnBothClusters) {
  for (const std::optional<Step> overlap : {std::optional<Step>{}, std::optional(Step{0}), std::optional(Step{2})}) {
    const AdPsgd algorithm({.overlap_steps = overlap});
    Parity parity;
    for (const RunTotals& totals : {parity.simulated(algorithm).totals, parity.mpi(algorithm).totals}) {
      EXPECT_EQ(totals.kept, (std::vector<std::int64_t>(workers, 20 * micro_batches)));
      EXPECT_GE(totals.messages, 2 * 2 + workers - 1);  // at the least an exchange of each active worker
      EXPECT_EQ(totals.collectives, 0);
      for (const Account& account : totals.accounts) EXPECT_EQ(account.total(), totals.end.time_since_epoch());
    }
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

// How many are stopped is for the clock to say.
TEST(Parity, RingmasterKeepsAsMuchOnBothClustersAndNothingTooOld) {
  for (const auto late : {Ringmaster::Late::stop, Ringmaster::Late::finish}) {
    const Ringmaster algorithm(2, late);
    Parity parity;
    for (const RunTotals& totals : {parity.simulated(algorithm).totals, parity.mpi(algorithm).totals}) {
      EXPECT_EQ(std::accumulate(totals.kept.begin(), totals.kept.end(), std::int64_t{0}), 20 * workers * micro_batches);
      EXPECT_LE(totals.staleness.size(), 2u);
      for (const Account& account : totals.accounts) EXPECT_EQ(account.total(), totals.end.time_since_epoch());
    }
  }
}

TEST(Parity, DynamicBackupThatWaitsForAll) { expect_parity(DynamicBackup({.fewest = workers})); }

TEST(Parity, BackupTimeoutThatNobodyIsLateFor) {
  expect_parity(BackupTimeout({.timeout = from_seconds(60)}));
  expect_parity(BackupTimeout({.timeout = from_seconds(60),
                               .counted_from = TimeoutOptions::CountedFrom::first,
                               .late = TimeoutOptions::Late::cancel}));
}

// Three workers and two servers; worker 0 ends with the whole model.
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
    MpiCluster mpi({.workers = 3,
                    .servers = 2,
                    .compute_time = parity.compute_time,
                    .training = parity.training,
                    .session = *session});
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

}  // namespace
}  // namespace syncopate

int main(int argc, char** argv) {
  const syncopate::MpiSession session;
  syncopate::session = &session;
  return syncopate::run_tests_under_mpi(argc, argv, session);
}
