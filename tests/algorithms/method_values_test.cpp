// What is written in [[methods]] arrives in the method: it runs as the one that is made in code with those values. That
// each value makes a difference is shown by tests/experiments/method_keys_test.cpp; what it makes, by each method's own
// tests.
#include <gtest/gtest.h>

#include "algorithms/asynchronous/async_local_sgd.hpp"
#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/asynchronous/bounded_delay.hpp"
#include "algorithms/asynchronous/sliding_window.hpp"
#include "algorithms/asynchronous/softsync.hpp"
#include "algorithms/asynchronous/stale_synchronous.hpp"
#include "algorithms/gossip/stochastic_gradient_push.hpp"
#include "algorithms/gradient_coding/coded_sgd.hpp"
#include "algorithms/gradient_coding/codes.hpp"
#include "algorithms/local_sgd/branch_train_merge.hpp"
#include "algorithms/local_sgd/decoupled_diloco.hpp"
#include "algorithms/local_sgd/drop_local_sgd.hpp"
#include "algorithms/local_sgd/elastic_averaging.hpp"
#include "algorithms/local_sgd/hierarchical_sgd.hpp"
#include "algorithms/local_sgd/outer_local_sgd.hpp"
#include "algorithms/quorum/backup_all_reduce.hpp"
#include "algorithms/quorum/backup_tokens.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/quorum/eager_sgd.hpp"
#include "algorithms/synchronous/drop_compensation.hpp"
#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/drop_threshold.hpp"
#include "algorithms/synchronous/random_drop.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

// Four workers whose micro-batches take 1 s, 1.3 s, 1.6 s and 2.2 s and random times more.
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
  expect_same_run(
      backup_workers +
          "backups = 2\nlate = \"cancel\"\nlearning_rate = \"times-quorum\"\n"
          "average = { decay = 0.75, of = \"after-update\" }",
      averaged(BackupWorkers(2, {.late = BackupOptions::Late::cancel, .rate = BackupOptions::Rate::times_quorum}),
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
  expect_same_run(local + "update = { name = \"plain\" }", AsyncLocalSgd({.local_steps = 3}));
  expect_same_run(
      local + "update = { name = \"nesterov\", rate = 0.4, momentum = 0.6 }\nrate_scaling = \"1/sqrt(N)\"",
      AsyncLocalSgd({.local_steps = 3, .update = make_nesterov_update(0.4, 0.6), .weight = {.by_workers = true}}));
  expect_same_run(
      local +
          "update = { name = \"delayed-nesterov\", rate = 0.4, momentum = 0.6, every = 3, share = 0.2 }\n"
          "maximum_staleness = 3\nmoments = \"reset\"",
      AsyncLocalSgd({.local_steps = 3,
                     .update = make_delayed_nesterov_update({.rate = 0.4, .momentum = 0.6, .every = 3, .share = 0.2}),
                     .maximum_staleness = Step{3},
                     .moments = StatePolicy::reset}));
  expect_same_run(
      local +
          "update = { name = \"buffered\", size = 2, rate = 0.4, momentum = 0.6, reduce = \"sum\" }\n"
          "staleness_exponent = 0.5\nsteps_by_speed = \"down\"\nminimum_steps = 2\ngrace_s = 0.75",
      AsyncLocalSgd({.local_steps = 3,
                     .steps_by_speed = DynamicSteps{.rounding = DynamicSteps::Rounding::down, .minimum = Step{2}},
                     .update = make_buffered_update({2, 0.4, 0.6, Buffered::Reduce::sum}),
                     .weight = {.staleness_exponent = 0.5},
                     .grace = from_seconds(0.75)}));
}

TEST(MethodValues, OfDecoupledDiLoCoArriveAsWritten) {
  const std::string decoupled =
      "algorithm = \"decoupled-diloco\"\nouter = { name = \"diloco\", rate = 0.7, momentum = 0.6 }\n";
  const std::shared_ptr<const OuterOptimizer> outer = make_diloco(0.7, 0.6);
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
  expect_same_run("algorithm = \"dropcompute-local-sgd\"\nthreshold_s = 5.0\nclock = \"step\"\nweights = \"steps\"\n" +
                      every_3 + reset,
                  DropLocalSgd(every(3), {.threshold = from_seconds(5.0),
                                          .clock = DropLocalOptions::Clock::step,
                                          .weights = DropLocalOptions::Weights::steps,
                                          .state = resets}));
  expect_same_run("algorithm = \"hierarchical-sgd\"\ngroup_size = 2\ngroup_period = 2\n" + every_3 + reset,
                  HierarchicalSgd({.group_size = 2, .group_period = 2, .period = every(3), .policies = resets}));
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

// The paper's beta is N times the alpha by which a worker moves.
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

}  // namespace
}  // namespace syncopate
