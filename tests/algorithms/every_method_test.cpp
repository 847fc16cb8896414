// A method that is read from [[methods]] runs like the method that code creates with the same values.
// tests/experiments/keys_test.cpp shows that each value has an effect, and each method's own tests show which effect.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/asynchronous/async_local_sgd.hpp"
#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/asynchronous/bounded_delay.hpp"
#include "algorithms/asynchronous/sliding_window.hpp"
#include "algorithms/asynchronous/softsync.hpp"
#include "algorithms/asynchronous/stale_synchronous.hpp"
#include "algorithms/asynchronous/throttle.hpp"
#include "algorithms/gossip/stochastic_gradient_push.hpp"
#include "algorithms/gradient_coding/gradient_coding.hpp"
#include "algorithms/local_sgd/branch_train_merge.hpp"
#include "algorithms/local_sgd/decoupled_diloco.hpp"
#include "algorithms/local_sgd/elastic_averaging.hpp"
#include "algorithms/method/algorithm.hpp"
#include "algorithms/quorum/backup_all_reduce.hpp"
#include "algorithms/quorum/backup_tokens.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/quorum/eager_sgd.hpp"
#include "algorithms/quorum/mindflayer.hpp"
#include "algorithms/synchronous/drop_compensation.hpp"
#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/drop_threshold.hpp"
#include "algorithms/synchronous/random_drop.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "results/summary.hpp"
#include "tests/algorithms/asynchronous_updates.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/algorithms/three_workers.hpp"
#include "workers/time/distributions.hpp"
#include "workers/training/model_average.hpp"

namespace syncopate {
namespace {

// Four workers whose micro-batches take 1 s, 1.3 s, 1.6 s and 2.2 s plus random times.
const SimulatedRun setup{
    .workers = 4,
    .micro_batches = 2,
    .threads = 0,
    .network_s = 0.1,
    .momentum = 0.5,
    .budget = {.steps = 12},
    .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.3, 0.6, 1.2}), exponential_delay(0.5)}};

void expect_same_run(const std::string& written, const Algorithm& made) {
  SCOPED_TRACE(written);
  const MethodReading reading = read_method(written, {.workers = 4, .micro_batches = 2, .total_steps = Step{12}});
  ASSERT_EQ(reading.faults, "");
  const auto expected = setup.run(made);
  const auto outcome = setup.run(*reading.algorithm);
  EXPECT_EQ(outcome.log, expected.log);
  EXPECT_EQ(outcome.parameters, expected.parameters);
  EXPECT_EQ(outcome.members, expected.members);
  EXPECT_EQ(outcome.totals.messages, expected.totals.messages);
  EXPECT_EQ(outcome.totals.dropped, expected.totals.dropped);
}

BackupWorkers averaged(BackupWorkers method, const MovingAverageOptions& average) {
  method.average_publications(average);
  return method;
}

std::shared_ptr<const SyncPeriod> every(int steps) { return make_constant_period(steps); }
const std::string every_3 = "period = { rule = \"constant\", steps = 3 }\n";
const std::string reset = "moments = \"reset\"\n";
const StatePolicies resets{.average = {.moments = {StatePolicy::reset, StatePolicy::reset}}};

TEST(MethodValues, OfServersWithAQuorumArriveAsWritten) {
  const std::string backup_workers = "algorithm = \"backup-workers\"\n";
  expect_same_run(backup_workers + "backups = 1", BackupWorkers(3));
  expect_same_run(backup_workers + "backups = 0\nservers = 2", BackupWorkers(4, {.servers = 2}));
  expect_same_run(backup_workers +
                      "backups = 2\nlate = \"cancel\"\nlearning_rate = \"times-quorum\"\n"
                      "average = { decay = 0.75, of = \"after-update\" }",
                  averaged(BackupWorkers(2, {.late = LateWork::cancel, .rate = BackupOptions::Rate::times_quorum}),
                           {.decay = 0.75, .of = MovingAverageOptions::Of::after_update}));
  const std::string tokens = "algorithm = \"backup-tokens\"\n";
  expect_same_run(tokens + "backups = 1", BackupTokens(3));
  expect_same_run(tokens + "quorum = 6\ninitial_tokens = 3", BackupTokens(6, 3));
  expect_same_run("algorithm = \"backup-all-reduce\"\nbackups = 1", BackupAllReduce(3));
  expect_same_run("algorithm = \"eager-sgd\"\nactivation = \"solo\"", EagerSgd({.average_every = 100}));
  expect_same_run("algorithm = \"eager-sgd\"\nactivation = \"solo\"\nvariant = \"released\"",
                  EagerSgd({.late = LateGradient::drop, .synchronous_every = 32}));
  expect_same_run("algorithm = \"eager-sgd\"\nactivation = \"solo\"\nvariant = \"replayed\"",
                  EagerSgd({.missed = MissedSums::all, .synchronous_every = 32}));
  expect_same_run(
      "algorithm = \"eager-sgd\"\nactivation = \"majority\"\nlate = \"drop\"\nsynchronous_every = 3\naverage_every = 4",
      EagerSgd({.activation = EagerOptions::Activation::majority,
                .late = LateGradient::drop,
                .synchronous_every = 3,
                .average_every = 4}));
}

TEST(MethodValues, OfAsynchronousMethodsArriveAsWritten) {
  const std::string weighted = "staleness_weight = \"1/tau\"\nrate_scaling = \"linear\"\n";
  const UpdateRate rate{.weight = StalenessWeight::inverse, .scaling = RateScaling::linear};
  const UpdateRate plus_one{.weight = StalenessWeight::inverse_plus_one, .scaling = RateScaling::none};
  expect_same_run("algorithm = \"async-sgd\"\nmaximum_staleness = 2\nmaximum_age_s = 6.5\n" + weighted,
                  AsyncSgd({.maximum_staleness = Step{2}, .maximum_age = from_seconds(6.5), .rate = rate}));
  expect_same_run("algorithm = \"async-sgd\"\nstaleness_weight = \"1/(tau+1)\"", AsyncSgd({.rate = plus_one}));
  expect_same_run("algorithm = \"softsync\"\nsplitting = 2\n" + weighted, Softsync(2, rate));
  expect_same_run("algorithm = \"stale-synchronous\"\nslack = 1\n" + weighted, StaleSynchronous(1, rate));
  expect_same_run("algorithm = \"bounded-delay\"\nmaximum_delay = 2", BoundedDelay(2));
  expect_same_run("algorithm = \"sliding-window\"\nmaximum_delay = 2\n" + weighted, SlidingWindow(2, rate));
  const std::string local = "algorithm = \"async-local-sgd\"\nlocal_steps = 3\n";
  expect_same_run(local + "update = { name = \"plain\" }", AsyncLocalSgd({.rounds = {.local_steps = 3}}));
  expect_same_run(
      local + "update = { name = \"nesterov\", rate = 0.4, momentum = 0.6 }\nrate_scaling = \"1/sqrt(N)\"",
      AsyncLocalSgd(
          {.rounds = {.local_steps = 3}, .update = make_nesterov_update(0.4, 0.6), .weight = {.by_workers = true}}));
  expect_same_run(
      local +
          "update = { name = \"delayed-nesterov\", rate = 0.4, momentum = 0.6, every = 3, share = 0.2 }\n"
          "maximum_staleness = 3\nmoments = \"reset\"",
      AsyncLocalSgd({.rounds = {.local_steps = 3, .moments = StatePolicy::reset},
                     .update = make_delayed_nesterov_update({.rate = 0.4, .momentum = 0.6, .every = 3, .share = 0.2}),
                     .maximum_staleness = Step{3}}));
  expect_same_run(
      local +
          "update = { name = \"buffered\", size = 2, rate = 0.4, momentum = 0.6, reduce = \"sum\" }\n"
          "staleness_exponent = 0.5\nsteps_by_speed = \"down\"\nminimum_steps = 2\ngrace_s = 0.75",
      AsyncLocalSgd({.rounds = {.local_steps = 3,
                                .dylu = DynamicSteps{.rounding = DynamicSteps::Rounding::down, .minimum = Step{2}}},
                     .update = make_buffered_update({2, 0.4, 0.6, Buffered::Reduce::sum}),
                     .weight = {.staleness_exponent = 0.5},
                     .grace = from_seconds(0.75)}));
}

TEST(MethodValues, OfDecoupledDiLoCoArriveAsWritten) {
  const std::string decoupled =
      "algorithm = \"decoupled-diloco\"\nouter = { name = \"diloco\", rate = 0.7, momentum = 0.6 }\n";
  const OuterOptimizer outer = make_diloco(0.7, 0.6);
  expect_same_run(decoupled, DecoupledDiLoCo({.outer = outer}));
  expect_same_run(decoupled + "minimum_steps = 2\nmerge = \"mean\"",
                  DecoupledDiLoCo({.minimum_steps = 2, .merge = MergeRule::mean, .outer = outer}));
  expect_same_run(decoupled +
                      "quorum = 1\nfragments = 2\nlocal_steps = 3\nanchor = \"base\"\nlate = \"count\"\n"
                      "grace = { margin = 0.8, overlap_steps = 5, averaging = 0.25, initial_s = 0.2, longest_s = 3 }",
                  DecoupledDiLoCo({.quorum = 1,
                                   .fragments = Fragments(2),
                                   .local_steps = Step{3},
                                   .grace = GraceOptions{0.8, 5, 0.25, 0.2, 3},
                                   .anchor = DecoupledOptions::Anchor::base,
                                   .late = LateAnswers::count,
                                   .outer = outer}));
}

TEST(MethodValues, OfDropComputeArriveAsWritten) {
  const std::string drop_compute = "algorithm = \"dropcompute\"\n";
  using Options = DropComputeOptions;
  expect_same_run(drop_compute +
                      "threshold_s = 3.5\npreempt = \"backward\"\nforward_share = 0.75\n"
                      "normalisation = \"mean-rate\"\nmean_drop_rate = 0.25",
                  DropCompute(Options{.threshold = make_fixed_threshold(from_seconds(3.5)),
                                      .preempt = Preempt::backward,
                                      .forward_share = 0.75,
                                      .normalisation = Options::Normalisation::mean_rate,
                                      .mean_drop_rate = 0.25}));
  expect_same_run(
      drop_compute + "threshold_s = 3.5\npreempt = \"layer\"\nforward_share = 0.25\nnormalisation = \"computed\"",
      DropCompute(Options{.threshold = make_fixed_threshold(from_seconds(3.5)),
                          .preempt = Preempt::layer,
                          .forward_share = 0.25,
                          .normalisation = Options::Normalisation::computed}));
  expect_same_run(drop_compute + "threshold_s = 3.5\ncompensation = \"larger-batch\"\nredundancy = 0.5",
                  DropCompute(Options{.threshold = make_fixed_threshold(from_seconds(3.5)),
                                      .compensation = make_larger_batch(0.5)}));
  expect_same_run(drop_compute + "threshold_s = 3.5\ncompensation = \"recompute\"\nrecompute_every_steps = 3",
                  DropCompute(Options{.threshold = make_fixed_threshold(from_seconds(3.5)),
                                      .compensation = make_recomputation(3)}));
  expect_same_run(
      drop_compute + "threshold_s = 3.5\ncompensation = \"carry-over\"\ncarried_at_most = 1",
      DropCompute(Options{.threshold = make_fixed_threshold(from_seconds(3.5)), .compensation = make_carry_over(1)}));
  expect_same_run(drop_compute +
                      "threshold = { rule = \"adaptive-quantile\", quantile = 0.4, window_steps = 4, "
                      "update_every_steps = 2 }",
                  DropCompute(Options{.threshold = make_adaptive_threshold(
                                          {.quantile = 0.4, .window_steps = 4, .update_every_steps = 2})}));
  expect_same_run(drop_compute +
                      "threshold = { rule = \"adaptive-mad\", deviations = 0.5, window_steps = 4, update_every_steps = "
                      "2 }",
                  DropCompute(Options{.threshold = make_adaptive_threshold(
                                          {.statistic = AdaptiveThresholdOptions::Statistic::median_and_deviations,
                                           .deviations = 0.5,
                                           .window_steps = 4,
                                           .update_every_steps = 2})}));
  expect_same_run(drop_compute +
                      "threshold = { rule = \"automatic\", search = \"reference\", warmup_steps = 2, "
                      "calibration_steps = 5, maximum_drop_rate = 0.1, calibration_clock = \"micro-batch\" }",
                  DropCompute(Options{.threshold = make_automatic_threshold(
                                          {.form = SpeedupForm::reference,
                                           .warmup_steps = 2,
                                           .calibration_steps = 5,
                                           .maximum_drop_rate = 0.1,
                                           .clock = AutomaticThresholdOptions::Clock::micro_batch})}));
  expect_same_run("algorithm = \"random-drop\"\ndrop_rate = 0.4\nfrom_step = 3", RandomDrop(0.4, 3));
}

TEST(MethodValues, OfMethodsWithLocalStepsArriveAsWritten) {
  expect_same_run("algorithm = \"dropcompute-local-sgd\"\nthreshold_s = 14.0\n" + every_3,
                  DropLocalSgd(every(3), {.threshold = from_seconds(14.0)}));
  StatePolicies reset_by_steps = resets;
  reset_by_steps.weights = ModelWeights::steps;
  expect_same_run(
      "algorithm = \"dropcompute-local-sgd\"\nthreshold_s = 5.0\nclock = \"step\"\nweights = \"steps\"\n" + every_3 +
          reset,
      DropLocalSgd(every(3), {.threshold = from_seconds(5.0), .clock = DropOptions::Clock::step}, reset_by_steps));
  expect_same_run("algorithm = \"hierarchical-sgd\"\ngroup_size = 2\ngroup_period = 2\n" + every_3 + reset,
                  HierarchicalSgd({2, Step{2}}, every(3), resets));
  expect_same_run("algorithm = \"outer-local-sgd\"\nouter = { name = \"plain\", rate = 0.6 }\n" + every_3 + reset,
                  OuterLocalSgd(every(3), make_plain_outer(0.6), resets));
  expect_same_run(
      "algorithm = \"outer-local-sgd\"\nouter = { name = \"slowmo\", rate = 0.8, momentum = 0.3 }\n" + every_3,
      OuterLocalSgd(every(3), make_slowmo(0.8, 0.3), {}));
  expect_same_run(
      "algorithm = \"outer-local-sgd\"\nouter = { name = \"diloco\", rate = 0.6, momentum = 0.3 }\n" + every_3,
      OuterLocalSgd(every(3), make_diloco(0.6, 0.3), {}));
  expect_same_run("algorithm = \"branch-train-merge\"\nseed_steps = 3\nmerge = \"ensemble\"",
                  BranchTrainMerge(3, Merge::ensemble, {}));
  expect_same_run("algorithm = \"branch-train-merge\"\nseed_steps = 3", BranchTrainMerge(3, Merge::average, {}));
}

// The paper's beta is N times alpha, the share by which a worker moves.
TEST(MethodValues, OfElasticAveragingArriveAsWritten) {
  const std::string elastic = "algorithm = \"elastic-averaging\"\nbeta = 0.8\nperiod = 2\n";
  expect_same_run(elastic, ElasticAveraging({.alpha = 0.2, .period = 2}));
  expect_same_run(
      elastic + "momentum = 0.6\nexchange = \"asynchronous\"",
      ElasticAveraging(
          {.exchange = ElasticOptions::Exchange::asynchronous, .alpha = 0.2, .period = 2, .momentum = 0.6}));
}

TEST(MethodValues, OfCodesAndGossipArriveAsWritten) {
  const std::string coding = "algorithm = \"gradient-coding\"\n";
  expect_same_run(coding + "code = \"fractional\"\nstragglers = 1",
                  CodedSgd(fractional_repetition(4, 1), LateWork::finish));
  expect_same_run(coding + "code = \"ignore-stragglers\"\nstragglers = 2\nlate = \"cancel\"",
                  CodedSgd(ignore_stragglers(4, 2), LateWork::cancel));
  expect_same_run(coding + "code = \"cyclic\"\nstragglers = 1\ncode_seed = 5",
                  CodedSgd(*cyclic_repetition(4, 1, 5), LateWork::finish));
  expect_same_run(
      coding + "code = \"stochastic\"\ncopies = 2\nstragglers = 1\nplacement = \"balanced\"\ncode_seed = 5",
      CodedSgd(stochastic_code(
                   4, {.copies = 2, .straggler_share = 0.25, .needed = 3, .placement = Placement::balanced, .seed = 5}),
               LateWork::finish));
  expect_same_run(coding + "code = \"stochastic\"\ncopies = 3\nthreshold_s = 9.5\nstraggler_share = 0.3",
                  CodedSgd(stochastic_code(4, {.copies = 3, .straggler_share = 0.3, .needed = 4}), LateWork::finish,
                           from_seconds(9.5)));
  expect_same_run("algorithm = \"stochastic-gradient-push\"\noverlap_steps = 2",
                  StochasticGradientPush({.overlap_steps = 2}));
}

// Properties of every method in the registry, run from the example in its row. No test here names a method.

std::string text_of(const AlgorithmRow& row) { return fmt::format("algorithm = \"{}\"\n{}", row.name, row.example); }

MethodReading read(const AlgorithmRow& row) {
  return read_method(text_of(row), {.workers = 4, .micro_batches = 2, .total_steps = Step{12}});
}

template <typename Check>
void for_every_method(const Check& check) {
  for (const AlgorithmRow& row : algorithms()) {
    SCOPED_TRACE(text_of(row));
    const MethodReading reading = read(row);
    ASSERT_EQ(reading.faults, "") << "the row's `example` holds the keys that the method must be given, for 4 workers";
    check(*reading.algorithm);
  }
}

// Micro-batches of 1 s plus random times, on workers of different speeds.
const SimulatedRun example_setup{.workers = 4,
                                 .micro_batches = 2,
                                 .network_s = 0.1,
                                 .budget = {.steps = 12},
                                 .worker_factors = {1, 1.3, 1.1, 1.8},
                                 .delays = {exponential_delay(0.5)}};

TEST(EveryMethod, ComesToTheEndOfItsBudgetAndBooksEveryWorkerSecondOnce) {
  for_every_method([](const Algorithm& method) {
    const auto outcome = example_setup.run(method);
    EXPECT_EQ(outcome.published, Step{12});
    EXPECT_GT(sum(outcome.totals.kept), 0);
    expect_exact_accounts(outcome);
  });
}

TEST(EveryMethod, DoesTheSameTwice) {
  for_every_method([](const Algorithm& method) {
    const auto once = example_setup.run(method), twice = example_setup.run(method);
    EXPECT_EQ(once.log, twice.log);
    EXPECT_EQ(once.parameters, twice.parameters);
    EXPECT_EQ(once.totals.bytes, twice.totals.bytes);
  });
}

TEST(EveryMethod, TakesAsLongWithoutAModelUnlessItFollowsValues) {
  for_every_method([](const Algorithm& method) {
    if (method.traits().follows_values) return;
    SimulatedRun without = example_setup;
    without.objective = nullptr;
    const auto timed = without.run(method);
    EXPECT_EQ(timed.totals.end, example_setup.run(method).totals.end);
    EXPECT_EQ(timed.totals.kept, example_setup.run(method).totals.kept);
  });
}

// The largest difference between two runs' parameters, relative to the parameters.
double difference(const SimulatedRun::Outcome& a, const SimulatedRun::Outcome& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.parameters.size(); ++i)
    largest = std::max(largest, std::abs(1.0 - b.parameters[i] / a.parameters[i]));
  return largest;
}

TEST(EveryMethod, ThatDoesNotFollowTheClockComputesTheSameUnderAnyDelays) {
  for_every_method([](const Algorithm& method) {
    if (method.traits().follows_clock) return;
    SimulatedRun other = example_setup;
    other.delays = {std::make_shared<DelayOfWorker>(std::vector{3.0, 0.0, 0.2, 0.7})};
    EXPECT_LT(difference(example_setup.run(method), other.run(method)), 1e-5);
  });
}

// Compares one program for all workers with one program for each.
TEST(EveryMethod, WhoseWorkersTakeTheSameCourseTakesAsLongOnOneProgram) {
  for_every_method([](const Algorithm& method) {
    SimulatedRun alone = example_setup;
    alone.objective = nullptr;
    const auto on_fibers = alone.run(method);
    alone.in_lockstep = true;
    EXPECT_EQ(alone.run(method).log, on_fibers.log);
  });
}

TEST(EveryMethod, WithFormulasHasAForecastOrTheReasonWhyNot) {
  for_every_method([](const Algorithm& method) {
    const PredictedRun run{.workers = 4, .micro_batches = 2, .steps = 12};
    run.with_input([&](const PredictionInput& input) {
      const auto [predictions, why_none, minds_overlap] = method.forecast(input);
      EXPECT_EQ(predictions.empty() && why_none.empty(), !method.traits().has_formulas);
      EXPECT_TRUE(predictions.empty() || why_none.empty());
      for (const Prediction& prediction : predictions) EXPECT_GT(prediction.step_time_s, 0);
      return 0;
    });
  });
}

TEST(EveryMethod, SaysWhichModelItPublishes) {
  for (const AlgorithmRow& row : algorithms()) EXPECT_NE(row.evaluated, "") << row.name;
}

TEST(EveryMethod, IsComparedWithOneOfThem) {
  int baselines = 0;
  for_every_method([&](const Algorithm& method) { baselines += method.traits().is_baseline ? 1 : 0; });
  EXPECT_EQ(baselines, 1);
  EXPECT_TRUE(make_baseline()->traits().is_baseline) << "what stands in for it where a file does not name it";
}

// Keys that request more work than the whole budget has, in every method that has such a key.

using testing::HasSubstr;

// 16 workers and 40 steps: 640 gradients.
AlgorithmContext forty_steps() {
  return {.workers = 16, .total_steps = 40, .work = BudgetCheck::of_steps(Step{40}, 16)};
}

struct Case {
  const char* method;  // with a placeholder for the number
  const char* key;
  int most;
};

const std::vector<Case> cases = {
    {"algorithm = 'k-batch-sync'\ngradients = {}", "gradients", 640},
    {"algorithm = 'k-batch-async'\ngradients = {}", "gradients", 640},
    {"algorithm = 'mindflayer'\nrule = 'clipping-rennala'\nlimit_s = 1.0\ntrials = {}", "trials", 640},
    {"algorithm = 'backup-tokens'\nquorum = {}", "quorum", 640},
    {"algorithm = 'stsyn'\nquorum = 4\nlocal_steps = {}", "local_steps", 40},
    {"algorithm = 'async-local-sgd'\nupdate.name = 'plain'\nlocal_steps = {}", "local_steps", 40},
    {"algorithm = 'async-local-sgd'\nlocal_steps = 8\nupdate.name = 'buffered'\nupdate.size = {}", "update.size", 80},
    {"algorithm = 'async-local-sgd'\nlocal_steps = 8\nsteps_by_speed = 'up'\nminimum_steps = 2\n"
     "update.name = 'buffered'\nupdate.size = {}",
     "update.size", 320},
    {"algorithm = 'async-local-sgd'\nlocal_steps = 8\nupdate.name = 'delayed-nesterov'\nupdate.rate = 0.5\n"
     "update.momentum = 0.5\nupdate.every = {}",
     "update.every", 80},
    {"algorithm = 'halos'\nregions = 4\nmixing = 0.5\nlocal_steps = 4\nlocal_update.name = 'plain'\n"
     "global_update.name = 'plain'\nmerge_every = {}",
     "merge_every", 160},
    {"algorithm = 'halos'\nregions = 4\nmixing = 0.5\nlocal_steps = 4\nlocal_update.name = 'plain'\n"
     "global_update.name = 'buffered'\nmerge_every = 8\nglobal_update.size = {}",
     "global_update.size", 20},
    {"algorithm = 'halos'\nregions = 4\nmixing = 0.5\nlocal_steps = 4\nlocal_update.name = 'buffered'\n"
     "global_update.name = 'plain'\nmerge_every = 8\nlocal_update.size = {}",
     "local_update.size", 160},
    {"algorithm = 'decoupled-diloco'\nouter.name = 'plain'\nminimum_steps = {}", "minimum_steps", 40},
    {"algorithm = 'decoupled-diloco'\nouter.name = 'plain'\nquorum = 4\nminimum_steps = {}", "minimum_steps", 40},
    {"algorithm = 'decoupled-diloco'\nouter.name = 'plain'\nlocal_steps = {}", "local_steps", 40},
    {"algorithm = 'decoupled-diloco'\nouter.name = 'plain'\nfragments = 4\nlocal_steps = {}", "local_steps", 160},
    {"algorithm = 'edit'\nouter.name = 'plain'\nsync_seconds = 1.0\nminimum_steps = {}", "minimum_steps", 640},
    {"algorithm = 'mindflayer'\nlimit_s = inf\ntrials_per_worker = {}", "trials_per_worker", 40},
};

std::string faults(const Case& of, int value, const AlgorithmContext& context) {
  std::string text = of.method;
  text.replace(text.find("{}"), 2, std::to_string(value));
  return read_method(text, context).faults;
}

TEST(BudgetCheck, MoreThanTheWholeBudgetIsAFaultWithItsPlace) {
  for (const Case& of : cases) {
    EXPECT_EQ(faults(of, of.most, forty_steps()), "") << of.method;
    EXPECT_THAT(
        faults(of, of.most + 1, forty_steps()),
        HasSubstr(fmt::format("{} = {}; must be at most {}: the whole budget has", of.key, of.most + 1, of.most)))
        << of.method;
  }
}

TEST(BudgetCheck, WhereItIsNotKnownNothingIsRefused) {
  for (const Case& of : cases) EXPECT_EQ(faults(of, 100'000, {.workers = 16}), "") << of.method;
}

// If one fault causes another one, only the first is reported.
TEST(BudgetCheck, AFaultOfOneKeyIsNoneOfAnother) {
  const std::string report =
      read_method("algorithm = 'async-local-sgd'\nlocal_steps = 1000\nupdate.name = 'buffered'\nupdate.size = 3",
                  forty_steps())
          .faults;
  EXPECT_THAT(report, HasSubstr("local_steps = 1000; must be at most 40: the whole budget has 640 gradients, and one "
                                "unit of this key needs 16"));
  EXPECT_THAT(report, testing::Not(HasSubstr("update.size")));
}

TEST(BudgetCheck, OneIsAlwaysAllowed) {
  const AlgorithmContext context{.workers = 16, .work = {.gradients = 7}};
  EXPECT_EQ(faults(cases[4], 1, context), "");
  EXPECT_THAT(faults(cases[4], 2, context), HasSubstr("must be at most 1"));
}

TEST(BudgetCheck, VeryManyStepsAreNoLimit) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(BudgetCheck::of_steps(Step{most}, 1'000'000).gradients, most);
  EXPECT_EQ(BudgetCheck{}.of(most).of(most).in_one, most);
  EXPECT_FALSE(BudgetCheck::of_steps({}, 4).gradients);
}

// A budget that is met exactly ends after the round that meets it.

std::size_t rounds_of(const Budget& budget) {
  const SimulatedRun setup{.micro_batches = 2, .budget = budget};
  return setup.run(SyncSgd()).rounds.size();
}

// A round takes 2 micro-batches of 1 s and a collective of 0.5 s, and has 6 samples. An all-reduce over three workers
// sends 2 x 2 x 16 = 64 bytes.
TEST(Budget, ThatIsMetExactlyEndsTheRun) {
  EXPECT_EQ(rounds_of({.steps = 3}), 3u);
  EXPECT_EQ(rounds_of({.seconds = 7.5}), 3u);
  EXPECT_EQ(rounds_of({.samples = 18}), 3u);
  EXPECT_EQ(rounds_of({.bytes = Bytes{3 * 64}}), 3u);
}

TEST(Budget, ThatIsNotMetGoesOnForAnotherRound) {
  EXPECT_EQ(rounds_of({.seconds = 7.5001}), 4u);
  EXPECT_EQ(rounds_of({.samples = 19}), 4u);
  EXPECT_EQ(rounds_of({.bytes = Bytes{3 * 64 + 1}}), 4u);
}

TEST(Budget, OfSeveralEndsWithTheFirstThatIsMet) {
  EXPECT_EQ(rounds_of({.steps = 5, .seconds = 7.5, .samples = 1000}), 3u);
  EXPECT_EQ(rounds_of({.steps = 2, .seconds = 7.5}), 2u);
}

// Where each family of methods clips gradients (training.clip_norm): closed forms of small cases.

constexpr int workers = 4, micro_batches = 2;
constexpr double rate = 0.3, most = 6;

// One step of four equal workers from parameters of 1. Two of the gradients are longer than 6, and so is their mean.
SimulatedRun one_step() {
  return {.workers = workers, .micro_batches = micro_batches, .rate = rate, .clip_norm = most, .budget = {.steps = 1}};
}

// The mean over the micro-batches of a worker's first step.
Vector gradient_of(int worker) {
  Vector gradient{};
  for (std::size_t i = 0; i < gradient.size(); ++i)
    for (int m = 0; m < micro_batches; ++m)
      gradient[i] += (1.0 - PullObjective::target({Rank{worker}, 0, m}, i)) / micro_batches;
  return gradient;
}

enum class Clipped { mean, each };

// The parameters after a step along the mean of all gradients.
Vector after(Clipped what) {
  Vector mean{};
  for (int worker = 0; worker < workers; ++worker) {
    const Vector own = what == Clipped::each ? clipped(gradient_of(worker), most) : gradient_of(worker);
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += own[i] / workers;
  }
  if (what == Clipped::mean) mean = clipped(mean, most);
  Vector parameters{};
  for (std::size_t i = 0; i < mean.size(); ++i) parameters[i] = 1 - rate * mean[i];
  return parameters;
}

void expect_near(const std::vector<float>& found, const Vector& expected, double tolerance = 2e-5) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << i;
}

struct ClippingCase {
  std::string_view toml;
  Clipped clipped;
};

// Keys with which a method's first step takes all gradients, with equal weights that sum to one.
constexpr ClippingCase clipping_cases[] = {
    // Sums of all gradients: the mean is clipped.
    {"algorithm = \"sync-sgd\"", Clipped::mean},
    {"algorithm = \"dropcompute\"\nthreshold_s = 100", Clipped::mean},
    {"algorithm = \"random-drop\"\ndrop_rate = 0.3\nfrom_step = 5", Clipped::mean},
    {"algorithm = \"stale-sgd\"\nstaleness = 3", Clipped::mean},
    {"algorithm = \"acco\"", Clipped::mean},
    {"algorithm = \"delayed-update\"\nleast_micro_batches = 2", Clipped::mean},
    {"algorithm = \"backup-all-reduce\"\nbackups = 0", Clipped::mean},
    {"algorithm = \"eager-sgd\"\nactivation = \"solo\"\nsynchronous_every = 1", Clipped::mean},
    {"algorithm = \"gradient-coding\"\ncode = \"fractional\"\nstragglers = 1", Clipped::mean},
    {"algorithm = \"gradient-coding\"\ncode = \"cyclic\"\nstragglers = 1", Clipped::mean},
    {"algorithm = \"branch-train-merge\"\nseed_steps = 1", Clipped::mean},
    // Servers that take gradients: each worker clips its gradient before it sends it.
    {"algorithm = \"backup-workers\"\nbackups = 0", Clipped::each},
    {"algorithm = \"backup-workers\"\nbackups = 0\nservers = 3", Clipped::each},
    {"algorithm = \"backup-tokens\"\nbackups = 0", Clipped::each},
    {"algorithm = \"backup-timeout\"\ntimeout_s = 100", Clipped::each},
    {"algorithm = \"dynamic-backup\"", Clipped::each},
    {"algorithm = \"k-sync\"\ngradients = 4", Clipped::each},
    {"algorithm = \"k-batch-sync\"\ngradients = 4", Clipped::each},
    {"algorithm = \"malenia\"", Clipped::each},
    {"algorithm = \"mindflayer\"\nlimit_s = inf", Clipped::each},
    {"algorithm = \"mindflayer\"\nrule = \"clipping-rennala\"\ntrials = 4\nlimit_s = inf", Clipped::each},
    {"algorithm = \"async-sgd\"", Clipped::each},
    {"algorithm = \"softsync\"\nsplitting = 1", Clipped::each},
    {"algorithm = \"k-async\"\ngradients = 4", Clipped::each},
    {"algorithm = \"k-batch-async\"\ngradients = 4", Clipped::each},
    {"algorithm = \"ringmaster\"\ndelay_threshold = 100", Clipped::each},
    {"algorithm = \"rescaled-sgd\"", Clipped::each},
    {"algorithm = \"ormo\"\nmomentum = 0.5", Clipped::each},
    {"algorithm = \"throttle\"\ndivisor = 2", Clipped::each},
    {"algorithm = \"stale-synchronous\"\nslack = 1", Clipped::each},
    {"algorithm = \"bounded-delay\"\nmaximum_delay = 2", Clipped::each},
    {"algorithm = \"sliding-window\"\nmaximum_delay = 100", Clipped::each},
    // Local steps: each worker clips the gradients of its steps.
    {"algorithm = \"async-local-sgd\"\nlocal_steps = 1\nupdate = { name = \"plain\", rate = 0.25 }", Clipped::each},
    {"algorithm = \"heloco\"\nlocal_steps = 1\nrate = 0.25\nmomentum = 0\nrate_scaling = \"none\"\n"
     "correction.agreement = -1",
     Clipped::each},
    {"algorithm = \"halos\"\nregions = 1\nlocal_steps = 1\nlocal_update = { name = \"plain\", rate = 0.25 }\n"
     "global_update = { name = \"plain\" }\nmerge_every = 4\nmixing = 1",
     Clipped::each},
    {"algorithm = \"stsyn\"\nquorum = 4\nlocal_steps = 1", Clipped::each},
    {"algorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 1 }", Clipped::each},
    {"algorithm = \"hierarchical-sgd\"\ngroup_size = 2\ngroup_period = 1\nperiod = { rule = \"constant\", steps = 1 }",
     Clipped::each},
    {"algorithm = \"post-local-sgd\"\nstart = 0\nperiod = 1\ngroup_size = 1", Clipped::each},
    {"algorithm = \"post-local-sgd\"\nstart = 5\nperiod = 1\ngroup_size = 1", Clipped::mean},
    {"algorithm = \"outer-local-sgd\"\nperiod = { rule = \"constant\", steps = 1 }\nouter = { name = \"diloco\", "
     "rate = 1, momentum = 0 }",
     Clipped::each},
    {"algorithm = \"fedprox\"\nperiod = { rule = \"constant\", steps = 1 }", Clipped::each},
    {"algorithm = \"fednova\"\nperiod = { rule = \"constant\", steps = 1 }", Clipped::each},
    {"algorithm = \"scaffold\"\nperiod = { rule = \"constant\", steps = 1 }", Clipped::each},
    {"algorithm = \"des-loc\"\nperiod = 1", Clipped::each},
    {"algorithm = \"decentralized-sgd\"", Clipped::each},
    {"algorithm = \"stochastic-gradient-push\"", Clipped::each},
    {"algorithm = \"ad-psgd\"", Clipped::each},
    {"algorithm = \"wagma-sgd\"\ngroup_size = 2", Clipped::each},
};

TEST(Clipping, ActsWhereTheFamilySays) {
  for (const ClippingCase& c : clipping_cases) {
    SCOPED_TRACE(c.toml);
    const MethodReading reading =
        read_method(std::string(c.toml), {.workers = workers, .micro_batches = micro_batches, .total_steps = Step{1}});
    ASSERT_EQ(reading.faults, "");
    expect_near(one_step().run(*reading.algorithm).parameters, after(c.clipped));
  }
}

TEST(Clipping, TellsTheTwoApart) {
  const Vector mean = after(Clipped::mean), each = after(Clipped::each);
  for (std::size_t i = 0; i < mean.size(); ++i) EXPECT_GT(std::abs(mean[i] - each[i]), 1e-3);
}

TEST(Clipping, OfEveryMethodThatSendsGradientsIsKnown) {
  for (const AlgorithmRow& row : algorithms()) {
    const MethodReading reading =
        read_method("algorithm = \"" + std::string(row.name) + "\"\n" + std::string(row.example),
                    {.workers = workers, .total_steps = Step{12}});
    ASSERT_EQ(reading.faults, "");
    if (!reading.algorithm->traits().sends_gradients) continue;
    if (row.name == "decoupled-diloco") continue;  // has local steps
    if (row.name == "ringleader") continue;        // its first step takes two gradients of most workers
    const std::string begin = "algorithm = \"" + std::string(row.name) + "\"";
    EXPECT_TRUE(std::ranges::any_of(clipping_cases, [&](const ClippingCase& c) { return c.toml.starts_with(begin); }))
        << row.name;
  }
}

// Gradients are clipped before they are weighted or corrected, since clipping after that would undo the weights.
TEST(Clipping, LeavesWeightsOfStaleGradientsAsTheyAre) {
  SimulatedRun setup = three_workers(3);
  setup.rate = rate;
  setup.clip_norm = 2;  // less than the norm of every gradient of the timeline
  const auto outcome = setup.run(AsyncSgd({.rate = {StalenessWeight::inverse_plus_one, RateScaling::none}}));
  expect_near(outcome.parameters,
              after_updates(
                  PlainSgd{rate}, [](const AsynchronousUpdate&, double tau) { return 1 / (1 + tau); }, 2));
}

TEST(Clipping, LeavesSharesOfRepeatsAsTheyAre) {
  SimulatedRun setup = three_workers(3);
  setup.rate = rate;
  setup.clip_norm = 2;
  for (const double divisor : {2.0, 1000.0}) {
    const auto outcome = setup.run(Throttle({.divisor = divisor}));
    expect_near(
        outcome.parameters,
        after_updates(
            PlainSgd{rate / 3},
            [&](const AsynchronousUpdate& update, double) { return update.repeats == 0 ? 1 : 1 / divisor; }, 2));
  }
}

TEST(Clipping, LeavesACorrectionAsItIs) {
  const double distance = std::abs(1 - after(Clipped::each)[0]);
  for (const double correction : {1.0, 3.0}) {
    const auto outcome = one_step().run(ClippingRennala({.trials = workers, .correction = correction}));
    EXPECT_NEAR(std::abs(1.0 - outcome.parameters[0]), correction * distance, 1e-4);
  }
}

TEST(Clipping, OfAGradientThatIsShortEnoughChangesNothing) {
  SimulatedRun setup = three_workers(5);
  setup.micro_batches = 2;
  setup.momentum = 0.9;
  const auto without = setup.run(AsyncSgd({}));
  setup.clip_norm = 1e6;
  const auto with = setup.run(AsyncSgd({}));
  EXPECT_EQ(with.parameters, without.parameters);
  EXPECT_EQ(with.log, without.log);
}

// Each worker has the whole gradient and can compute its norm, even if several servers have slices of the model.
TEST(Clipping, DoesNotDependOnHowManyServersShareTheModel) {
  SimulatedRun setup{.micro_batches = 2, .momentum = 0.9, .clip_norm = 2, .budget = {.steps = 8}};
  const auto expected = setup.run(BackupWorkers(3)).parameters;
  for (const int servers : {2, 3, 4}) EXPECT_EQ(setup.run(BackupWorkers(3, {.servers = servers})).parameters, expected);
}

// A method whose steps do not depend on the clock ends with the same model for all durations of micro-batches and
// messages. For a method that declares a dependence, some delays change the result.

const std::string third_step_period = "\nperiod = { rule = \"constant\", steps = 3 }";
const std::vector<std::string> independent = {
    "sync-sgd\"",
    "random-drop\"\ndrop_rate = 0.3",
    "local-sgd\"" + third_step_period,
    "outer-local-sgd\"\nouter = { name = \"slowmo\", momentum = 0.5 }" + third_step_period,
    "hierarchical-sgd\"\ngroup_size = 2\ngroup_period = 1" + third_step_period,
    "post-local-sgd\"\nstart = 1\nperiod = 3\ngroup_size = 2",
    "branch-train-merge\"\nseed_steps = 4",
    "branch-train-merge\"\nseed_steps = 4\nmerge = \"ensemble\"",
    "dynamic-averaging\"\nthreshold = 1\ncheck_every = 2\nchecks = \"gathered\"",
    "elastic-averaging\"\nbeta = 0.8\nperiod = 2",
    "decentralized-sgd\"",
    "decentralized-sgd\"\ngraph = { kind = \"one-peer-exponential\" }",
    "stochastic-gradient-push\"",
    "stochastic-gradient-push\"\ngraph = { kind = \"complete\" }",
    "stale-sgd\"\nstaleness = 2\nspread = 1",
    "cocod-sgd\"" + third_step_period,
    "overlap-local-sgd\"\nmixing = 0.5\nmomentum = 0.5" + third_step_period,
    "co2\"" + third_step_period,
    "overlapped-diloco\"\nouter = { name = \"slowmo\", momentum = 0.5 }" + third_step_period,
    "overlapped-diloco\"\nupdate = \"delayed\"\nouter = { name = \"plain\" }" + third_step_period,
    "fedprox\"\nsteps_of_workers = [3, 1, 2, 3]" + third_step_period,
    "fednova\"\nsteps_of_workers = [3, 1, 2, 3]" + third_step_period,
    "scaffold\"" + third_step_period,
    "scaffold\"\ncontrol = \"gradient\"" + third_step_period,
    "noloco\"\nlocal_steps = 3"};
const std::vector<std::string> dependent = {"dropcompute\"\nthreshold_s = 1.2",
                                            "backup-workers\"\nbackups = 1",
                                            "backup-tokens\"\nbackups = 1",
                                            "backup-all-reduce\"\nbackups = 1",
                                            "eager-sgd\"\nactivation = \"solo\"",
                                            "async-sgd\"",
                                            "softsync\"\nsplitting = 2",
                                            "stale-synchronous\"\nslack = 1",
                                            "bounded-delay\"\nmaximum_delay = 2",
                                            "sliding-window\"\nmaximum_delay = 2",
                                            "async-local-sgd\"\nlocal_steps = 3\nupdate = { name = \"plain\" }",
                                            "decoupled-diloco\"\nquorum = 1\nouter = { name = \"plain\" }",
                                            "dropcompute-local-sgd\"\nthreshold_s = 4" + third_step_period,
                                            "elastic-averaging\"\nbeta = 0.8\nperiod = 2\nexchange = \"asynchronous\"",
                                            "gradient-coding\"\ncode = \"ignore-stragglers\"\nstragglers = 1",
                                            "stochastic-gradient-push\"\noverlap_steps = 2",
                                            "ad-psgd\"",
                                            "ad-psgd\"\noverlap_steps = 0",
                                            "stochastic-gradient-push\"\noverlap_steps = 2\noverlap = \"released\"",
                                            "dynamic-averaging\"\nthreshold = 20\ncheck_every = 2",
                                            "acco\"",
                                            "ringleader\""};

// The largest difference between runs under two laws of delays, relative to the parameters.
double model_difference(const Algorithm& algorithm) {
  SimulatedRun setup{.workers = 4, .budget = {.steps = 12}, .delays = {exponential_delay(1)}};
  const auto even = setup.run(algorithm);
  setup.delays = {std::make_shared<DelayOfWorker>(std::vector{3.0, 0.0, 0.2, 0.7})};
  setup.network_s = 0.05;
  const auto uneven = setup.run(algorithm);
  EXPECT_EQ(even.members.size(), uneven.members.size());
  double largest = 0;
  for (std::size_t i = 0; i < even.parameters.size(); ++i)
    largest = std::max(largest, std::abs(1.0 - uneven.parameters[i] / even.parameters[i]));
  return largest;
}

std::unique_ptr<Algorithm> method(const std::string& keys) {
  auto reading = read_method("algorithm = \"" + keys, {.workers = 4, .total_steps = Step{12}});
  EXPECT_EQ(reading.faults, "");
  return std::move(reading.algorithm);
}

TEST(DependsOnClock, IsSaidOfWhatOthersDelaysChangeAndOfNothingElse) {
  for (const std::string& keys : independent) {
    const auto algorithm = method(keys);
    EXPECT_FALSE(algorithm->traits().follows_clock) << keys;
    EXPECT_LT(model_difference(*algorithm), 1e-5) << keys;
  }
  for (const std::string& keys : dependent) {
    const auto algorithm = method(keys);
    EXPECT_TRUE(algorithm->traits().follows_clock) << keys;
    EXPECT_GT(model_difference(*algorithm), 1e-3) << keys;
  }
}

// One program may represent all workers if no worker decides anything by its own clock, or by its own dropped or
// computed micro-batches. With a budget of seconds, workers decide by their clocks in a round of several steps.
TEST(WorkersActAlike, WhereNoneDecidesAnythingAlone) {
  const Budget steps{.steps = 12}, samples{.samples = 100}, bytes{.bytes = Bytes{1000}}, seconds{.seconds = 20},
      both{.steps = 12, .seconds = 20};
  const std::optional<Step> never, always = Step{0};
  const auto expect = [&](const std::string& keys, const std::optional<Step>& from,
                          const std::optional<Step>& from_with_seconds) {
    const auto algorithm = method(keys);
    for (const Budget& budget : {steps, samples, bytes})
      EXPECT_EQ(algorithm->traits().lockstep_under(budget), from) << keys;
    for (const Budget& budget : {seconds, both})
      EXPECT_EQ(algorithm->traits().lockstep_under(budget), from_with_seconds) << keys;
  };
  expect("sync-sgd\"", always, always);
  expect(independent[2], always, never);  // Local SGD
  expect(independent[3], always, never);  // Local SGD with an outer optimizer
  const std::string drop_compute = "dropcompute\"\nthreshold_s = 1.2";
  expect(drop_compute, always, always);
  expect(drop_compute + "\nnormalisation = \"computed\"", never, never);
  expect(drop_compute + "\ncompensation = \"extra-steps\"", never, never);
  expect(drop_compute + "\ncompensation = \"larger-batch\"\nredundancy = 0.5", never, never);
  expect(drop_compute + "\ncompensation = \"recompute\"\nrecompute_every_steps = 3", never, never);
  expect(drop_compute + "\ncompensation = \"carry-over\"", never, never);
  const std::string rule = "dropcompute\"\nthreshold = { rule = ";
  expect(rule + "\"automatic\", warmup_steps = 2, calibration_steps = 3 }", Step{5}, Step{5});
  expect(rule + "\"adaptive-mad\", window_steps = 4, update_every_steps = 2 }", never, never);
  for (std::size_t i = 1; i < independent.size(); ++i)
    if (i < 2 || i > 3) expect(independent[i], never, never);
  for (std::size_t i = 1; i < dependent.size(); ++i) expect(dependent[i], never, never);
}

// At the end of a virtual clock, after 292 years, a run fails clearly, on fibers and in lockstep, without a deadlock.

using testing::HasSubstr;

std::string failure_of(SimulatedRun run, bool in_lockstep) {
  run.objective = nullptr;
  run.in_lockstep = in_lockstep;
  try {
    run.run(SyncSgd());
  } catch (const RunFailure& failure) {
    return failure.what();
  }
  return "none";
}

class EndlessNetwork : public NetworkModel {
 public:
  Duration collective(const CollectiveCall&) const override { return longest_duration; }
  Duration message(const MessageCall&) const override { return longest_duration; }
};

TEST(LongTimes, ANetworkThatTakesForEverEndsTheClock) {
  const SimulatedRun run{.workers = 3, .network = std::make_shared<EndlessNetwork>(), .budget = {.steps = 10}};
  for (const bool in_lockstep : {false, true})
    EXPECT_EQ(failure_of(run, in_lockstep),
              "the virtual time of the cluster exceeds the clock's range of 9223372037 s "
              "(292 years)");
}

// Six micro-batches of 32 years exceed 146 years, but do not count as a micro-batch that never ends.
TEST(LongTimes, AStepLongerThanHalfTheClockIsAStep) {
  const SimulatedRun run{.workers = 2, .micro_batches = 6, .base_s = 1e9, .budget = {.steps = 1}};
  const SimulatedRun two{.workers = 2, .micro_batches = 6, .base_s = 1e9, .budget = {.steps = 2}};
  for (const bool in_lockstep : {false, true}) {
    EXPECT_EQ(failure_of(run, in_lockstep), "none");
    EXPECT_THAT(failure_of(two, in_lockstep), HasSubstr("exceeds the clock's range"));
  }
}

TEST(LongTimes, AMicroBatchWithoutEndIsNamedAsTheReason) {
  const SimulatedRun run{
      .workers = 2,
      .delays = {std::make_shared<DelayOfWorker>(std::vector<double>{0, std::numeric_limits<double>::infinity()})}};
  for (const bool in_lockstep : {false, true})
    EXPECT_THAT(failure_of(run, in_lockstep),
                testing::AllOf(
                    testing::StartsWith("no participant can continue after 0.000000 s: a micro-batch that takes more "
                                        "than 146 years never ends"),
                    HasSubstr("worker 1: waiting in a micro-batch that never ends")));
}

// A sum's compute time is the sum of the gradients' times.
TEST(LongTimes, TheTimeThatASumTookStopsAtTheLongest) {
  Gradient sum(nullptr, MicroBatch{}, Duration{5});
  sum += Gradient(nullptr, MicroBatch{}, Duration::max() - Duration{7});
  EXPECT_EQ(sum.compute_time(), Duration::max() - Duration{2});
  sum += Gradient(nullptr, MicroBatch{}, Duration{3});
  EXPECT_EQ(sum.compute_time(), Duration::max());
  EXPECT_EQ(sum.micro_batches(), 3);
}

// Each worker's clock can reach 292 years. Together three workers have more: 600.
TEST(LongTimes, SecondsOfAllWorkersTogetherMayBeMore) {
  constexpr double worker_s = 200 * 365.25 * 24 * 3600;
  RunSummary summary;
  for (int i = 0; i < 3; ++i) summary.accounts.emplace_back()[Activity::compute] = from_seconds(worker_s / 2) * 2;
  const auto json = nlohmann::json::parse(to_json(summary));
  EXPECT_DOUBLE_EQ(json["worker_seconds"]["summed"]["compute"].get<double>(), 3 * worker_s);
  EXPECT_DOUBLE_EQ(json["worker_seconds"]["summed"]["total"].get<double>(), 3 * worker_s);
}

// The moving average of published models, for every method: Chen et al.'s averaged parameters.

using Of = MovingAverageOptions::Of;

// The golden sequence of TensorFlow's rule: after models of 1, 2, 3, 4 the average is 0.9, 1.8, 2.7, 3.6.
TEST(MovingAverage, WithNumUpdatesFollowsTensorFlowsGoldenSequence) {
  Executor executor(0);
  Training training(std::make_shared<PullObjective>(), make_sgd({}), {}, executor);
  const ModelStatePtr ones = training.initial_state();
  const auto times = [&](double factor) { return training.combine(std::vector<WeightedState>{{factor, ones}}); };
  MovingAverage average({.decay = 0.9999, .of = Of::after_update, .num_updates = true}, times(0));
  for (int n = 0; n < 4; ++n)
    for (const float found : training.values(average.update(times(n + 1), training)))
      EXPECT_NEAR(found, 0.9 * (n + 1), 1e-6);
}

TEST(MovingAverage, ReachesItsDecayAfterSoManyUpdates) {
  const MovingAverageOptions rule{.decay = 0.9999, .num_updates = true};
  EXPECT_DOUBLE_EQ(rule.decay_of(0), 0.1);
  EXPECT_LT(rule.decay_of(89'989), 0.9999);
  EXPECT_DOUBLE_EQ(rule.decay_of(89'990), 0.9999);
  EXPECT_DOUBLE_EQ(rule.decay_of(1'000'000), 0.9999);
  EXPECT_DOUBLE_EQ(MovingAverageOptions{.decay = 0.9999}.decay_of(0), 0.9999);
}

// With one worker the method is serial SGD: the model and its average follow a recursion in double precision.
TEST(MovingAverage, OfAsynchronousSgdIsThatOfChensAlgorithm2OrOneUpdateLater) {
  constexpr double rate = 0.3, decay = 0.8;
  constexpr int steps = 12;
  const SimulatedRun setup{.workers = 1, .rate = rate, .budget = {.steps = steps}};
  for (const bool num_updates : {false, true})
    for (const std::string of : {"before-update", "after-update"}) {
      const auto reading = read_method(fmt::format("algorithm = \"async-sgd\"\naverage = {{ decay = {}, of = \"{}\", "
                                                   "num_updates = {} }}",
                                                   decay, of, num_updates),
                                       {.workers = 1});
      ASSERT_EQ(reading.faults, "");
      const auto outcome = setup.run(*reading.algorithm);
      for (std::size_t i = 0; i < 4; ++i) {
        double theta = 1, average = 1;
        for (int n = 0; n < steps; ++n) {
          const double before = theta;
          theta -= rate * (theta - PullObjective::target({Rank{0}, n, 0}, i));
          const double d = num_updates ? std::min(decay, (1.0 + n) / (10 + n)) : decay;
          average = d * average + (1 - d) * (of == "before-update" ? before : theta);
        }
        EXPECT_NEAR(outcome.parameters[i], average, 1e-4) << of;
      }
    }
}

// With a decay of 0 the average is the published model or, if the average is one update late, the one before.
TEST(MovingAverage, OfEveryMethodIsOfWhatItPublishes) {
  const SimulatedRun setup{.workers = 4, .micro_batches = 2, .momentum = 0.5, .budget = {.steps = 12}};
  for (const AlgorithmRow& row : algorithms()) {
    const std::string text = fmt::format("algorithm = \"{}\"\n{}\n", row.name, row.example);
    SCOPED_TRACE(text);
    const auto run = [&](const std::string& average) {
      const auto reading = read_method(text + average, {.workers = 4, .micro_batches = 2, .total_steps = Step{12}});
      EXPECT_EQ(reading.faults, "");
      return setup.run(*reading.algorithm);
    };
    const auto itself = run(""), now = run("average = { decay = 0, of = \"after-update\" }"),
               kept = run("average = { decay = 0.999999, of = \"after-update\" }");
    EXPECT_EQ(now.parameters, itself.parameters);
    EXPECT_EQ(now.log, itself.log) << "an average costs no time";
    EXPECT_NE(kept.parameters, itself.parameters);
    // A server makes 48 updates, and targets are at most 40 away.
    for (const float value : kept.parameters) EXPECT_NEAR(value, 1, 2e-3) << "the initial model, nearly";
  }
}

TEST(MovingAverage, OfAnEnsembleIsAFault) {
  const std::string text = "algorithm = \"branch-train-merge\"\nmerge = \"ensemble\"\n";
  const auto faults = [&](const std::string& more) {
    return read_method(text + more, {.workers = 2, .total_steps = Step{4}}).faults;
  };
  EXPECT_EQ(faults(""), "");
  EXPECT_THAT(faults("average = { decay = 0.9 }"), testing::HasSubstr("must be left out with merge"));
}

// SWAP publishes its only merge at the very end, and branch-train-merge publishes only its merge. With a decay of one
// half, half of the average must be this merge.
TEST(MovingAverage, OfRoundsTakesInTheLastOne) {
  const SimulatedRun setup{.workers = 3, .momentum = 0.5, .budget = {.steps = 6}};
  for (const std::string method :
       {"algorithm = \"local-sgd\"\nperiod = { rule = \"swap\", switch_step = 0 }\n",
        "algorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 6 }\n",
        "algorithm = \"dropcompute-local-sgd\"\nthreshold_s = 100\nperiod = { rule = \"constant\", steps = 6 }\n",
        "algorithm = \"hierarchical-sgd\"\ngroup_size = 2\ngroup_period = 1\n"
        "period = { rule = \"constant\", steps = 6 }\n",
        "algorithm = \"outer-local-sgd\"\nouter = { name = \"plain\" }\n"
        "period = { rule = \"constant\", steps = 6 }\n",
        "algorithm = \"branch-train-merge\"\n"}) {
    SCOPED_TRACE(method);
    const auto run = [&](const std::string& average) {
      const auto reading = read_method(method + average, {.workers = 3, .total_steps = Step{6}});
      EXPECT_EQ(reading.faults, "");
      return setup.run(*reading.algorithm).parameters;
    };
    const auto merged = run(""), average = run("average = { decay = 0.5 }");
    ASSERT_EQ(average.size(), merged.size());
    for (std::size_t i = 0; i < merged.size(); ++i) EXPECT_NEAR(average[i], (1 + merged[i]) / 2, 1e-6);
    EXPECT_THAT(
        read_method(method + "average = { of = \"before-update\" }", {.workers = 3, .total_steps = Step{6}}).faults,
        testing::HasSubstr("of = \"before-update\"; must be \"after-update\": this method publishes"));
  }
}

TEST(MovingAverage, IsCheckedWhereItIsRead) {
  const auto faults_of = [](const std::string& average) {
    return read_method("algorithm = \"softsync\"\nsplitting = 2\naverage = " + average).faults;
  };
  EXPECT_EQ(faults_of("{ decay = 0.9999, num_updates = true }"), "");
  EXPECT_EQ(faults_of("{}"), "");
  EXPECT_THAT(faults_of("{ decay = 1.0 }"), testing::HasSubstr("decay = 1"));
  EXPECT_THAT(faults_of("{ of = \"later\" }"), testing::HasSubstr("of = \"later\""));
  EXPECT_THAT(faults_of("{ decay = 0.5, updates = true }"), testing::HasSubstr("updates"));
}

}  // namespace
}  // namespace syncopate
