// Parity of methods that average models of all workers, of groups or of neighbours.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "algorithms/gossip/ad_psgd.hpp"
#include "algorithms/gossip/decentralized_sgd.hpp"
#include "algorithms/gossip/noloco.hpp"
#include "algorithms/gossip/stochastic_gradient_push.hpp"
#include "algorithms/gossip/wagma_sgd.hpp"
#include "algorithms/local_sgd/branch_train_merge.hpp"
#include "algorithms/local_sgd/dynamic_averaging.hpp"
#include "algorithms/local_sgd/edit.hpp"
#include "algorithms/local_sgd/elastic_averaging.hpp"
#include "algorithms/local_sgd/fednova.hpp"
#include "algorithms/local_sgd/post_local_sgd.hpp"
#include "algorithms/local_sgd/scaffold.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/workers/expected_parity.hpp"
#include "workers/models/matrix_steps.hpp"

namespace syncopate {

// Compressed averages for which workers wait, in one phase or in two, and averages during the next round.
TEST(Parity, CompressedAverages) {
  for (const std::string_view kind : {"top-k", "random-k", "sign", "qsgd", "int8", "fp4", "bins", "tiles"}) {
    CompressionOptions options = compression(kind, Compresses::averages, 0.1);
    options.error_feedback = kind != "qsgd";
    SCOPED_TRACE(kind);
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

// MuLoCo: local steps of Muon, and differences in four bins with error feedback.
TEST(Parity, CompressedAveragesOfMuonsSteps) {
  OuterLocalSgd method(make_constant_period(Step{5}), make_diloco(0.64, 0.6), {});
  method.compress(compression("bins", "residual_decay = 0.9", Compresses::averages));
  expect_parity(method, make_muon({.all_matrices = true}, orthogonalise_by_torch), tolerance_of("bins"));
}

TEST(Parity, CompressedFragments) {
  for (const std::string_view kind : {"top-k", "random-k", "sign", "qsgd", "int8", "fp4"}) {
    CompressionOptions options = compression(kind, Compresses::averages, 0.1);
    options.error_feedback = kind != "qsgd";
    SCOPED_TRACE(kind);
    StreamingDiloco method(make_constant_period(Step{6}), make_diloco(0.7, 0.5), {Fragments(3), Step{2}, 0.3}, {});
    method.compress(options);
    expect_parity(method, make_sgd({.momentum = 0.9}), tolerance_of(kind));
  }
}

TEST(Parity, LocalSgdWithAConstantPeriod) { expect_parity(LocalSgd(make_constant_period(Step{5}), {})); }

TEST(Parity, FederatedClassics) {
  const auto period = [] { return make_constant_period(Step{5}); };
  expect_parity(FedProx(period(), 0.1));
  expect_parity(Scaffold({.period = period(), .rate = 0.8}), make_sgd({}));
  // In each round except the last, Option I takes one more step; in the last round no budget is left for it.
  expect_parity(Scaffold({.period = period(), .rate = 0.8, .control = ScaffoldOptions::Control::gradient}),
                make_sgd({}), 1e-5, 0, Step{3});
  std::vector<Step> of_workers;
  for (int worker = 0; worker < workers; ++worker) of_workers.emplace_back(1 + worker % 5);
  expect_parity(FedNova({.period = period(), .momentum = 0.9, .mu = 0.1, .steps_of_workers = of_workers}));
  using Second = AdaptiveOuter::Second;
  for (const Second second : {Second::adagrad, Second::adam, Second::yogi})
    expect_parity(OuterLocalSgd(period(), make_adaptive_outer({.second = second, .rate = 0.05}), {}));
}

TEST(Parity, PostLocalSgd) {
  expect_parity(PostLocalSgd({.start = 3, .warmup = 3, .period = 4, .group_size = 2}));
  expect_parity(PostLocalSgd({.start = 3, .warmup = 1, .period = 4, .group_size = 3}), make_adamw({}));
  expect_parity(PostLocalSgd({.start = 3, .warmup = 3, .period = 6, .levels = {{.group_size = 2, .period = 2}}}));
}

TEST(Parity, NoLoCo) { expect_parity(NoLoco({.local_steps = 5})); }

TEST(Parity, AveragesByNumbersOfSamples) {
  const StatePolicies by_numbers{.weights = ModelWeights::samples};
  expect_parity(LocalSgd(make_constant_period(Step{5}), by_numbers));
  expect_parity(CocodSgd(make_constant_period(Step{5}), by_numbers));
  expect_parity(
      StreamingDiloco(make_constant_period(Step{6}), make_diloco(0.7, 0.5), {Fragments(3), Step{2}, 0.3}, by_numbers));
}

TEST(Parity, LocalSgdWithTheQuadraticRuleAndAveragedMomentum) {
  expect_parity(LocalSgd(make_power_period({.power = 2, .coefficient = 0.05, .minimum = Step{2}}),
                         {.average = {.moments = {StatePolicy::average, StatePolicy::average}}}));
}

// Averages of moments alone, averages of moments with parameters, and both in one run.
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

TEST(Parity, DropComputeInsideLocalSgdWithoutAThreshold) {
  for (const auto clock : {DropOptions::Clock::period, DropOptions::Clock::step})
    expect_parity(DropLocalSgd(make_constant_period(Step{5}), {.clock = clock}));
}

TEST(Parity, SynchronousElasticAveraging) { expect_parity(ElasticAveraging({.alpha = 0.2, .period = 2})); }

TEST(Parity, OuterOptimizers) {
  expect_parity(OuterLocalSgd(make_constant_period(Step{6}), make_slowmo(0.9, 0.5), {}));
  expect_parity(OuterLocalSgd(make_constant_period(Step{6}), make_diloco(0.7, 0.9), {}));
  expect_parity(PalSgd(make_constant_period(Step{6}), make_diloco(0.7, 0.9), {.probability = 0.3}));
}

// Norms are computed in single precision. An outlier close to the threshold could be decided differently.
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
    options.period = nullptr;  // rounds last until a time that never comes, so there is one round
    options.timed.length = longest_duration;
    options.timed.warmup_steps = Step{4};
    options.penalty.step_share = 0.5;
    expect_parity(Edit(options));
  }
}

// The clock determines each worker's number of steps at the end of a round, but not its number of micro-batches.
TEST(Parity, EditByTimeOffersAsMuchOnBothClusters) {
  const Edit algorithm({.timed = {.length = from_seconds(7.5 * mean_delay_s)}, .outer = make_diloco(0.7, 0.8)});
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
  const OuterOptimizer diloco = make_diloco(0.7, 0.9), heavy_ball = make_heavy_ball(1, 0.5, 1);
  expect_parity(CocodSgd(every_6, {}));
  expect_parity(OverlapLocalSgd(every_6, {.mixing = 0.6, .momentum = 0.5}, {}));
  expect_parity(OverlappedOuter(every_6, diloco, {.update = Update::eager}, {}));
  expect_parity(OverlappedOuter(every_6, diloco, {.update = Update::delayed}, {}));
  expect_parity(OverlappedOuter(every_6, heavy_ball, {Update::delayed, Averaged::models}, {}));
}

TEST(Parity, FragmentsThatAreAveragedInTurn) {
  const std::shared_ptr<const SyncPeriod> every_6 = make_constant_period(Step{6});
  const OuterOptimizer diloco = make_diloco(0.7, 0.9), slowmo = make_slowmo(0.9, 0.5);
  expect_parity(StreamingDiloco(every_6, diloco, {Fragments(3), Step{0}, 0}, {}));
  expect_parity(StreamingDiloco(every_6, diloco, {Fragments(2), Step{2}, 0.5}, {}));
  expect_parity(StreamingDiloco(every_6, slowmo, {Fragments(4), Step{5}, 0}, {}));
}

TEST(Parity, HierarchicalSgdWithGroupsOfTwoAndOfThreeAndOne) {
  for (const int group_size : {2, 3})
    expect_parity(HierarchicalSgd({group_size, Step{2}}, make_constant_period(Step{8})));
}

// Combinations that no method has: pulls, groups of two and an outer step; late averages with steps that may be pulls.
TEST(Parity, RoundsOfChoicesThatNoMethodHas) {
  const PullOptions pull{.probability = 0.3};
  expect_parity(LocalRounds({.steps = make_pulling_steps(pull),
                             .period = make_constant_period(Step{6}),
                             .groups = GroupsOfRound{2, Step{2}},
                             .outer = make_diloco(0.7, 0.9)}));
  expect_parity(LocalRounds({.steps = make_pulling_steps(pull),
                             .period = make_constant_period(Step{6}),
                             .late = make_eager_rule(),
                             .outer = make_heavy_ball(0.8, 0.5)}));
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

TEST(Parity, DecentralizedSgdOnARing) { expect_parity(DecentralizedSgd()); }

TEST(Parity, DecentralizedSgdOnTheCompleteGraph) {
  expect_parity(DecentralizedSgd(IndividualModels::mean, complete_graph(workers)));
}

TEST(Parity, StochasticGradientPush) { expect_parity(StochasticGradientPush()); }

TEST(Parity, StochasticGradientPushToSeveral) {
  expect_parity(StochasticGradientPush({.graph = exponential_graph(workers)}));
}

// All rounds are global, so no worker is late.
TEST(Parity, WagmaSgdOfGlobalRounds) {
  const WagmaSgd algorithm({.group_size = 2, .global_every = 1});
  Parity parity;
  parity.server_takes_steps = false;
  const Outcome expected = parity.simulated(algorithm), found = parity.mpi(algorithm);
  ASSERT_EQ(found.parameters.size(), expected.parameters.size());
  for (std::size_t i = 0; i < expected.parameters.size(); ++i)
    EXPECT_NEAR(found.parameters[i], expected.parameters[i], 1e-5) << i;
}

// The clock determines which models are mixed and when. In the end all workers have taken their steps, and no worker
// waits for one that has left.
TEST(Parity, AdPsgdKeepsAsMuchOnBothClusters) {
  for (const std::optional<Step> overlap : {std::optional<Step>{}, std::optional(Step{0}), std::optional(Step{2})}) {
    const AdPsgd algorithm({.overlap_steps = overlap});
    Parity parity;
    for (const RunTotals& totals : {parity.simulated(algorithm).totals, parity.mpi(algorithm).totals}) {
      EXPECT_EQ(totals.kept, (std::vector<std::int64_t>(workers, 20 * micro_batches)));
      EXPECT_GE(totals.messages, 2 * 2 + workers - 1);  // at least one exchange of each active worker
      EXPECT_EQ(totals.collectives, 0);
      for (const Account& account : totals.accounts) EXPECT_EQ(account.total(), totals.end.time_since_epoch());
    }
  }
}

}  // namespace syncopate
