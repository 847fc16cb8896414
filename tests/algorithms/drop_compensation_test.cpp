#include "algorithms/synchronous/drop_compensation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/drop_threshold.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Log = std::vector<std::string>;

DropCompute dropping(double threshold_s, DropCompensation compensation) {
  return DropCompute({.threshold = make_fixed_threshold(from_seconds(threshold_s)), .compensation = compensation});
}

// Micro-batches take 1, 1.25 and 2 s: within 3.1 s workers finish 3, 2 and 1 of 3. A collective takes 0.5 s.
SimulatedRun uneven(int steps, std::shared_ptr<const Objective> objective = std::make_shared<PullObjective>()) {
  return {.micro_batches = 3,
          .budget = {.steps = steps},
          .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})},
          .objective = std::move(objective)};
}

void expect_all_evaluated(const PullObjective& objective, int workers, int steps, int micro_batches) {
  for (int n = 0; n < workers; ++n)
    for (int s = 0; s < steps; ++s)
      for (int m = 0; m < micro_batches; ++m)
        EXPECT_TRUE(objective.evaluated.contains({Rank{n}, Step{s}, m})) << n << " " << s << " " << m;
}

TEST(DropCompensation, WithNothingDroppedNothingChanges) {
  SimulatedRun setup = uneven(20);
  setup.momentum = 0.9;
  const auto expected = setup.run(SyncSgd());
  for (const auto& compensation : {make_no_compensation(), make_extra_steps({}, ExtraStepsSchedule::kept),
                                   make_larger_batch(0), make_recomputation(5), make_carry_over(3)}) {
    const auto outcome = setup.run(dropping(HUGE_VAL, compensation));
    EXPECT_EQ(outcome.parameters, expected.parameters);
    EXPECT_EQ(outcome.log, expected.log);
  }
}

TEST(ExtraSteps, ComputeAsManySamplesAsWerePlanned) {
  // 6 of 9 micro-batches are kept, so the redundancy is 9 / 6 - 1 = 1/2: 20 steps become 30, and 30 x 6 = 20 x 9.
  const auto outcome = uneven(20).run(dropping(3.1, make_extra_steps({}, ExtraStepsSchedule::kept)));
  EXPECT_EQ(outcome.rounds.size(), 30u);
  EXPECT_EQ(outcome.samples, 20 * 9);
  EXPECT_EQ(outcome.published, Step{30});
}

TEST(ExtraSteps, AGivenRedundancyIsTakenAsItIs) {
  const auto outcome = uneven(20).run(dropping(3.1, make_extra_steps(0.25, ExtraStepsSchedule::kept)));
  EXPECT_EQ(outcome.rounds.size(), 25u);
}

// The redundancy times the run's steps, to the nearest whole number.
TEST(ExtraSteps, AreANumberOfWholeSteps) {
  for (const auto& [redundancy, extra] : {std::pair(0.12, 1), {0.13, 1}, {0.17, 2}, {0.04, 0}, {1.26, 13}})
    EXPECT_EQ(uneven(10).run(dropping(3.1, make_extra_steps(redundancy, ExtraStepsSchedule::kept))).rounds.size(),
              static_cast<std::size_t>(10 + extra))
        << redundancy;
  // 6 of 9 micro-batches are kept, so the 4 planned steps become 6.
  EXPECT_EQ(uneven(4).run(dropping(3.1, make_extra_steps({}, ExtraStepsSchedule::kept))).rounds.size(), 6u);
}

TEST(ExtraSteps, ARunThatComputesNothingIsNotExtended) {
  EXPECT_EQ(uneven(4).run(dropping(0.5, make_extra_steps({}, ExtraStepsSchedule::kept))).rounds.size(), 4u);
}

TEST(ExtraSteps, TheScheduleStaysAtItsEndOrIsStretched) {
  SimulatedRun setup = uneven(20);
  const LearningRate::Options linear{.shape = LearningRate::Shape::linear, .peak = 1, .total_steps = 20};
  setup.learning_rate = std::make_shared<LearningRate>(linear);
  const auto rates = [&](ExtraStepsSchedule schedule) {
    std::vector<double> found;  // learning rates of the step after each publication
    for (const Publication& p : setup.run(dropping(3.1, make_extra_steps(0.25, schedule))).publications)
      found.push_back(p.learning_rate);
    return found;
  };
  const auto kept = rates(ExtraStepsSchedule::kept), stretched = rates(ExtraStepsSchedule::stretched);
  ASSERT_EQ(kept.size(), 25u);
  ASSERT_EQ(stretched.size(), 25u);
  for (int step = 1; step <= 25; ++step) {
    const auto i = static_cast<std::size_t>(step - 1);
    EXPECT_DOUBLE_EQ(kept[i], setup.learning_rate->at(step));
    EXPECT_DOUBLE_EQ(stretched[i], setup.learning_rate->at(static_cast<int>(step / 1.25)));
  }
}

TEST(LargerBatch, OffersMoreAndDividesByWhatItOffers) {
  const auto objective = std::make_shared<PullObjective>();
  SimulatedRun setup = uneven(1, objective);
  setup.rate = 0.5;
  const auto outcome = setup.run(dropping(4.5, make_larger_batch(1.0 / 3)));
  // Within 4.5 s the workers finish 4, 3 and 2 of the 4 micro-batches that are offered.
  EXPECT_EQ(outcome.log, Log{"step 1 at 5.000 s: kept 9, dropped 3"});
  const std::vector<MicroBatch> kept = {{Rank{0}, 0, 0}, {Rank{0}, 0, 1}, {Rank{0}, 0, 2},
                                        {Rank{0}, 1, 0}, {Rank{1}, 0, 0}, {Rank{1}, 0, 1},
                                        {Rank{1}, 0, 2}, {Rank{2}, 0, 0}, {Rank{2}, 0, 1}};
  EXPECT_EQ(objective->evaluated, std::set(kept.begin(), kept.end()));
  double sum = 0;
  for (const MicroBatch& micro_batch : kept) sum += 1.0 - PullObjective::target(micro_batch, 0);
  EXPECT_NEAR(outcome.parameters[0], 1 - 0.5 * sum / 12, 1e-5);
}

// Each of 3 workers is offered four micro-batches, and a fifth of these is expected to be dropped. So 3 x 4 x 0.8
// micro-batches are kept on average. This is the divisor, whatever the step keeps, and not the file's 3 x 3
// micro-batches.
TEST(LargerBatch, TheMeanRateIsThatOfWhatIsOffered) {
  SimulatedRun setup = uneven(1);
  setup.rate = 0.5;
  const auto outcome = setup.run(DropCompute({.threshold = make_fixed_threshold(from_seconds(4.5)),
                                              .normalisation = DropComputeOptions::Normalisation::mean_rate,
                                              .mean_drop_rate = 0.2,
                                              .compensation = make_larger_batch(1.0 / 3)}));
  EXPECT_EQ(outcome.log, Log{"step 1 at 5.000 s: kept 9, dropped 3"});
  // Worker 0 finishes all four; the last is a sample that no usual step has. The others finish their first 3 and 2.
  const std::vector<MicroBatch> kept = {{Rank{0}, 0, 0}, {Rank{0}, 0, 1}, {Rank{0}, 0, 2},
                                        {Rank{0}, 1, 0}, {Rank{1}, 0, 0}, {Rank{1}, 0, 1},
                                        {Rank{1}, 0, 2}, {Rank{2}, 0, 0}, {Rank{2}, 0, 1}};
  double sum = 0;
  for (const MicroBatch& micro_batch : kept) sum += 1.0 - PullObjective::target(micro_batch, 0);
  EXPECT_NEAR(outcome.parameters[0], 1 - 0.5 * sum / (3 * 4 * 0.8), 1e-5);
}

TEST(LargerBatch, NoSampleIsOfferedTwice) {
  const auto objective = std::make_shared<PullObjective>();
  uneven(3, objective).run(dropping(HUGE_VAL, make_larger_batch(1.0 / 3)));
  EXPECT_EQ(objective->evaluations, 3 * 3 * 4);
  expect_all_evaluated(*objective, 3, 4, 3);
}

// 12 micro-batches and 11 % more are 13.32 on average: a step has 13 or 14, and 25 steps have 333.
TEST(LargerBatch, OffersAFractionalRedundancyOnAverage) {
  for (const auto& [micro_batches, redundancy, steps, offered] : {std::tuple(12, 0.11, 25, 333),
                                                                  {12, 0.11, 100, 1332},
                                                                  {9, 1.0 / 9, 1000, 10'000},
                                                                  {9, 0.0, 100, 900},
                                                                  {1, 0.3, 10, 13}}) {
    const SimulatedRun setup{
        .workers = 2, .micro_batches = micro_batches, .budget = {.steps = steps}, .objective = nullptr};
    const auto outcome = setup.run(dropping(HUGE_VAL, make_larger_batch(redundancy)));
    EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{offered, offered}));
    const double mean = micro_batches * (1 + redundancy);
    for (const StepRow& row : outcome.rounds) EXPECT_LT(std::abs(static_cast<double>(row.kept) / 2 - mean), 1);
  }
}

TEST(LargerBatch, OfAFractionalNumberOffersNoSampleTwice) {
  const auto objective = std::make_shared<PullObjective>();
  uneven(4, objective).run(dropping(HUGE_VAL, make_larger_batch(0.5)));  // 4, 5, 4 and 5 for 4.5 on average
  EXPECT_EQ(objective->evaluations, 3 * 18);
  EXPECT_EQ(objective->evaluated.size(), 3u * 18);
  expect_all_evaluated(*objective, 3, 6, 3);
}

// Each step is along the mean of its micro-batches, so without drops it is as long as a step of M micro-batches.
TEST(LargerBatch, IsDividedByWhatEachStepOffers) {
  constexpr double rate = 0.25;
  SimulatedRun setup{.workers = 1, .micro_batches = 3, .rate = rate, .budget = {.steps = 2}};
  const auto outcome = setup.run(dropping(HUGE_VAL, make_larger_batch(0.5)));
  double theta = 1;
  int number = 0;
  for (const int offered : {4, 5}) {
    double mean_target = 0;
    for (int m = 0; m < offered; ++m, ++number)
      mean_target += PullObjective::target({Rank{0}, number / 3, number % 3}, 0) / offered;
    theta -= rate * (theta - mean_target);
  }
  EXPECT_NEAR(outcome.parameters[0], theta, 1e-5);
}

// A step offers 13.32 micro-batches on average instead of 12, and drops some. So 25 steps offer 333, the work of 27.75
// planned steps. Micro-batches that are carried over or recomputed do not count as additional work.
TEST(LargerBatch, WhatIsPublishedCountsWhatEachStepHasBeyondTheFiles) {
  const SimulatedRun setup{.workers = 2, .micro_batches = 12, .budget = {.steps = 25}, .objective = nullptr};
  for (const double threshold_s : {HUGE_VAL, 9.5}) {
    const auto larger = setup.run(dropping(threshold_s, make_larger_batch(0.11)));
    ASSERT_FALSE(larger.publications.empty());
    EXPECT_EQ(larger.publications.back().step, Step{25});
    EXPECT_NEAR(larger.publications.back().surplus_steps, 333.0 / 12 - 25, 1e-9);
  }
  for (const auto& other : {make_no_compensation(), make_carry_over(3), make_recomputation(5)})
    for (const Publication& publication : setup.run(dropping(9.5, other)).publications)
      EXPECT_EQ(publication.surplus_steps, 0);
}

// All micro-batches take 1 s, and a collective 0.5 s. So dropping never pays in steps of 4 or 5 micro-batches.
TEST(LargerBatch, OfAFractionalNumberIsSearchedForAThreshold) {
  const SimulatedRun setup{.workers = 3, .micro_batches = 3, .budget = {.steps = 30}, .objective = nullptr};
  const auto outcome = setup.run(
      DropCompute({.threshold = make_automatic_threshold({.warmup_steps = Step{1}, .calibration_steps = Step{5}}),
                   .compensation = make_larger_batch(0.5)}));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>(3, 15 * 4 + 15 * 5)));
}

TEST(Recomputation, WhatWasDroppedIsComputedBeforeTheNextEpoch) {
  const auto objective = std::make_shared<PullObjective>();
  const auto outcome = uneven(3, objective).run(dropping(3.1, make_recomputation(2)));
  // After two steps the workers have dropped 0, 2 and 4. They exchange these numbers (0.5 s), and take two additional
  // steps: of 0, 2 and 3 micro-batches (6 s), and of 0, 0 and 1 (2 s). Then comes the third step of the epoch.
  EXPECT_EQ(outcome.log, (Log{"step 1 at 3.600 s: kept 6, dropped 3", "step 2 at 7.200 s: kept 6, dropped 3",
                              "step 3 at 14.200 s: kept 5, dropped 0", "step 4 at 16.700 s: kept 1, dropped 0",
                              "step 5 at 20.300 s: kept 6, dropped 3"}));
  expect_all_evaluated(*objective, 3, 2, 3);
  EXPECT_EQ(objective->evaluations, 2 * 9 + 6);
  EXPECT_TRUE(objective->evaluated.contains({Rank{0}, 2, 0}));
  EXPECT_EQ(outcome.published, Step{3});  // counted in steps of the experiment file
}

// One worker keeps 1 of 2 micro-batches of every step, and additional steps recompute all missing ones. The next epoch
// misses the same number, although the total number kept is as planned.
TEST(Recomputation, WhatIsComputedAgainDoesNotCountForTheEpochInWhichItIs) {
  const auto objective = std::make_shared<PullObjective>();
  SimulatedRun setup{.workers = 1, .micro_batches = 2, .budget = {.steps = 6}, .objective = objective};
  setup.run(dropping(1.5, make_recomputation(2)));
  expect_all_evaluated(*objective, 1, 4, 2);
  EXPECT_FALSE(objective->evaluated.contains({Rank{0}, 5, 1}));
}

TEST(Recomputation, AdditionalStepsHoldTheLearningRateAndDivideByTheSame) {
  SimulatedRun setup = uneven(3);
  const LearningRate::Options linear{.shape = LearningRate::Shape::linear, .peak = 1, .total_steps = 4};
  setup.learning_rate = std::make_shared<LearningRate>(linear);
  const auto outcome = setup.run(dropping(3.1, make_recomputation(2)));
  const auto sum_of = [](std::initializer_list<MicroBatch> micro_batches, double x) {
    double sum = 0;
    for (const MicroBatch& micro_batch : micro_batches) sum += x - PullObjective::target(micro_batch, 0);
    return sum;
  };
  const auto usual = [&](int s, double x) {
    const MicroBatch a{Rank{0}, s, 0}, b{Rank{0}, s, 1}, c{Rank{0}, s, 2}, d{Rank{1}, s, 0}, e{Rank{1}, s, 1},
        f{Rank{2}, s, 0};
    return sum_of({a, b, c, d, e, f}, x);
  };
  const auto rate = [&](int step) { return setup.learning_rate->at(step); };
  double x = 1;
  x -= rate(0) * usual(0, x) / 9;
  x -= rate(1) * usual(1, x) / 9;
  x -= rate(1) * sum_of({{Rank{1}, 0, 2}, {Rank{1}, 1, 2}, {Rank{2}, 0, 1}, {Rank{2}, 0, 2}, {Rank{2}, 1, 1}}, x) / 9;
  x -= rate(1) * sum_of({{Rank{2}, 1, 2}}, x) / 9;
  x -= rate(2) * usual(2, x) / 9;
  EXPECT_NEAR(outcome.parameters[0], x, 1e-4);
}

// Additional steps have no threshold, so they are not divided by the mean drop rate.
TEST(Recomputation, TheMeanRateDividesUsualStepsAlone) {
  DropComputeOptions options;
  options.threshold = make_fixed_threshold(from_seconds(3.1));
  options.normalisation = DropComputeOptions::Normalisation::mean_rate;
  options.mean_drop_rate = 1.0 / 3;
  options.compensation = make_recomputation(1);
  SimulatedRun setup = uneven(1);
  setup.budget.steps = 2;
  const auto outcome = setup.run(DropCompute(std::move(options)));
  const auto x_less = [&](std::initializer_list<MicroBatch> micro_batches, double divisor, double x) {
    double sum = 0;
    for (const MicroBatch& micro_batch : micro_batches) sum += x - PullObjective::target(micro_batch, 0);
    return x - setup.rate * sum / divisor;
  };
  const auto usual = [&](int s, double x) {
    return x_less(
        {{Rank{0}, s, 0}, {Rank{0}, s, 1}, {Rank{0}, s, 2}, {Rank{1}, s, 0}, {Rank{1}, s, 1}, {Rank{2}, s, 0}},
        9 * (1 - 1.0 / 3), x);
  };
  const double again = x_less({{Rank{1}, 0, 2}, {Rank{2}, 0, 1}, {Rank{2}, 0, 2}}, 9, usual(0, 1));
  EXPECT_NEAR(outcome.parameters[0], usual(1, again), 1e-4);
}

// The fifth step takes 10 s, and loses micro-batches because the four steps before it took 2 s each. The step that
// recomputes them does not show how long usual steps take: only usual steps are followed by a gather of times.
TEST(Recomputation, AnAdaptiveThresholdLearnsFromUsualStepsAlone) {
  class SlowFifthStep : public DelayProcess {
   public:
    void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
      for (double& added : added_s) added += stream.step == Step{4} ? 4 : 0;
    }
    double mean_s() const override { return 0; }
  };
  const SimulatedRun setup{
      .micro_batches = 2, .budget = {.steps = 8}, .delays = {std::make_shared<SlowFifthStep>()}, .objective = nullptr};
  const auto outcome =
      setup.run(DropCompute({.threshold = make_adaptive_threshold({.window_steps = 2, .update_every_steps = 1}),
                             .compensation = make_recomputation(5)}));
  ASSERT_EQ(outcome.rounds.size(), 9u);
  EXPECT_EQ(outcome.rounds[4].dropped, 6);
  EXPECT_EQ(outcome.rounds[5].kept, 6);
  EXPECT_EQ(outcome.rounds[5].dropped, 0);
  EXPECT_EQ(outcome.totals.collectives, 9 + 8 + 1);  // steps, their times, and how much each worker must recompute
}

TEST(CarryOver, DroppedMicroBatchesComeFirstInTheNextStep) {
  const auto objective = std::make_shared<PullObjective>();
  const auto outcome = uneven(2, objective).run(dropping(3.1, make_carry_over(3)));
  // After step 1 worker 1 carries 1 micro-batch and worker 2 carries 2. After step 2 worker 1 carries 2; worker 2 has 4
  // left, and loses the newest.
  EXPECT_EQ(outcome.log, (Log{"step 1 at 3.600 s: kept 6, dropped 0", "step 2 at 7.200 s: kept 6, dropped 1"}));
  const std::vector<MicroBatch> kept = {{Rank{0}, 0, 0}, {Rank{0}, 0, 1}, {Rank{0}, 0, 2}, {Rank{0}, 1, 0},
                                        {Rank{0}, 1, 1}, {Rank{0}, 1, 2}, {Rank{1}, 0, 0}, {Rank{1}, 0, 1},
                                        {Rank{1}, 0, 2}, {Rank{1}, 1, 0}, {Rank{2}, 0, 0}, {Rank{2}, 0, 1}};
  EXPECT_EQ(objective->evaluated, std::set(kept.begin(), kept.end()));
}

TEST(CarryOver, ComputesEachMicroBatchExactlyOnceWhenThereIsTimeToCatchUp) {
  // Worker 2 takes 2 s per micro-batch in the first four steps, and then 1 s: within 5.5 s it finishes 2, later 5.
  class SlowThirdWorkerAtFirst : public DelayProcess {
   public:
    void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
      for (double& added : added_s) added += stream.worker == Rank{2} && stream.step < Step{4} ? 1 : 0;
    }
    double mean_s() const override { return 0; }
  };
  const auto objective = std::make_shared<PullObjective>();
  const SimulatedRun setup{.micro_batches = 3,
                           .budget = {.steps = 12},
                           .delays = {std::make_shared<SlowThirdWorkerAtFirst>()},
                           .objective = objective};
  const auto outcome = setup.run(dropping(5.5, make_carry_over(100)));
  expect_all_evaluated(*objective, 3, 12, 3);
  EXPECT_EQ(objective->evaluations, 3 * 12 * 3);
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>(3, 36)));
  EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>(3, 0)));
}

TEST(CarryOver, OfNothingIsNoCompensation) {
  const auto expected = uneven(10).run(dropping(3.1, make_no_compensation()));
  const auto outcome = uneven(10).run(dropping(3.1, make_carry_over(0)));
  EXPECT_EQ(outcome.parameters, expected.parameters);
  EXPECT_EQ(outcome.log, expected.log);
}

std::string faults_of(const std::string& keys, const AlgorithmContext& context) {
  SettingsDocument document(parse_toml(keys, "test.toml"));
  Settings settings = document.root();
  read_drop_compensation(settings, context);
  return document.check().report();
}

const AlgorithmContext in_steps{.micro_batches = 4, .steps_per_epoch = 100, .counts_steps = true};

TEST(DropCompensationSettings, ARunMustBeLongerThanTheStepsBeforeARecomputation) {
  AlgorithmContext run = in_steps;
  run.total_steps = 100;
  EXPECT_THAT(
      faults_of("compensation = \"recompute\"", run),
      HasSubstr("compensation = \"recompute\"; would compute dropped micro-batches after 100 steps, but the run "
                "ends after 100; recompute_every_steps must be smaller"));
  EXPECT_THAT(faults_of("compensation = \"recompute\"\nrecompute_every_steps = 120", run),
              HasSubstr("recompute_every_steps = 120; would compute dropped micro-batches after 120 steps"));
  EXPECT_EQ(faults_of("compensation = \"recompute\"\nrecompute_every_steps = 99", run), "");
}

TEST(DropCompensationSettings, WhatACompensationNeedsIsMissed) {
  EXPECT_THAT(faults_of("compensation = \"extra-steps\"", {.micro_batches = 4}), HasSubstr("compensation"));
  EXPECT_THAT(faults_of("compensation = \"larger-batch\"", in_steps), HasSubstr("redundancy"));
  EXPECT_THAT(faults_of("compensation = \"recompute\"", {.micro_batches = 4}), HasSubstr("recompute_every_steps"));
  EXPECT_EQ(faults_of("compensation = \"recompute\"", in_steps), "");
  EXPECT_THAT(faults_of("compensation = \"extra-steps\"\nlearning_rate_schedule = \"stretched\"", in_steps),
              HasSubstr("learning_rate_schedule"));
}

std::string resolved_schedule(const std::string& keys) {
  SettingsDocument document(parse_toml(keys, "test.toml"));
  Settings settings = document.root();
  read_drop_compensation(settings, in_steps);
  EXPECT_EQ(document.check().report(), "") << keys;
  const TomlNode resolved = document.resolved();
  return std::get<std::string>(resolved.find("learning_rate_schedule")->value);
}

TEST(DropCompensationSettings, ExtraStepsStretchTheScheduleWhereTheirNumberIsGiven) {
  EXPECT_EQ(resolved_schedule("compensation = \"extra-steps\"\nredundancy = 0.1"), "stretched");
  EXPECT_EQ(resolved_schedule("compensation = \"extra-steps\""), "kept") << "nobody knows how long the run is";
  const std::string kept = "learning_rate_schedule = \"kept\"";
  EXPECT_EQ(resolved_schedule("compensation = \"extra-steps\"\nredundancy = 0.1\n" + kept), "kept");
}

// In 40 steps the rate falls to 1e-6 of its peak: ten more steps then move the parameters by a millionth.
TEST(DropCompensationSettings, ExtraStepsAtARateOfNearlyNothingAreFaults) {
  const auto faults = [](const std::string& keys, LearningRate::Options rate) {
    rate.total_steps = 40;
    const LearningRate schedule(rate);
    AlgorithmContext context = in_steps;
    context.total_steps = 40;
    context.learning_rate = &schedule;
    return faults_of("compensation = \"extra-steps\"\n" + keys, context);
  };
  using Shape = LearningRate::Shape;
  const LearningRate::Options low{.shape = Shape::linear, .peak = 0.5, .final = 1e-6};
  const std::string kept = "learning_rate_schedule = \"kept\"", given = "redundancy = 0.25\n";
  EXPECT_EQ(faults(given, low), "");
  EXPECT_THAT(faults(given + kept, low),
              AllOf(HasSubstr("learning_rate_schedule = \"kept\"; must be \"stretched\""), HasSubstr("ends at 1e-06")));
  EXPECT_THAT(faults("", low), AllOf(HasSubstr("compensation = \"extra-steps\""), HasSubstr("`redundancy`")));
  for (const LearningRate::Options& high :
       {LearningRate::Options{.shape = Shape::linear, .peak = 0.5, .final = 0.005},
        LearningRate::Options{.shape = Shape::constant, .peak = 0.5},
        LearningRate::Options{.shape = Shape::step, .peak = 0.5, .decay_steps = {Step{10}, Step{20}}}}) {
    EXPECT_EQ(faults(given + kept, high), "");
    EXPECT_EQ(faults("", high), "");
  }
  EXPECT_NE(faults("", {.shape = Shape::step, .peak = 0.5, .decay_steps = {Step{10}, Step{20}, Step{30}}}), "");
}

TEST(DropCompensationSettings, WrongValuesAreFaults) {
  EXPECT_THAT(faults_of("compensation = \"later\"", in_steps), AllOf(HasSubstr("carry-over"), HasSubstr("recompute")));
  EXPECT_THAT(faults_of("compensation = \"larger-batch\"\nredundancy = -0.1", in_steps),
              HasSubstr("redundancy = -0.1"));
  EXPECT_THAT(faults_of("compensation = \"extra-steps\"\nredundancy = inf", in_steps), HasSubstr("redundancy = inf"));
  EXPECT_THAT(faults_of("compensation = \"carry-over\"\ncarried_at_most = -1", in_steps),
              HasSubstr("carried_at_most = -1"));
  EXPECT_THAT(faults_of("compensation = \"recompute\"\nrecompute_every_steps = 0", in_steps),
              HasSubstr("recompute_every_steps = 0"));
  EXPECT_THAT(faults_of("compensation = \"none\"\nredundancy = 0.1", in_steps), HasSubstr("redundancy"));
}

TEST(DropCompensationSettings, EveryRowOfTheTableCanBeWritten) {
  for (const auto& row : drop_compensations()) {
    const std::string more = row.name == "larger-batch" ? "\nredundancy = 0.11" : "";
    EXPECT_EQ(faults_of("compensation = \"" + std::string(row.name) + "\"" + more, in_steps), "") << row.name;
  }
  EXPECT_EQ(faults_of("", in_steps), "");
}

}  // namespace
}  // namespace syncopate
