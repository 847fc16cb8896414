#include "algorithms/synchronous/drop_compute.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/math/distributions/normal.hpp>

#include "algorithms/synchronous/drop_threshold.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {
namespace {

const Duration infinite = from_seconds(HUGE_VAL);

std::shared_ptr<const DelayProcess> slow_third_worker() {
  return std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0});
}

TEST(DropCompute, WithoutThresholdEqualsSynchronousSgdBitForBit) {
  SimulatedRun setup{.micro_batches = 3, .momentum = 0.9, .budget = {.steps = 20}, .delays = {slow_third_worker()}};
  const auto expected = setup.run(SyncSgd());
  for (const Preempt preempt : {Preempt::discard, Preempt::microbatch, Preempt::backward, Preempt::layer}) {
    const auto outcome = setup.run(DropCompute(infinite, preempt, 1.0 / 3));
    EXPECT_EQ(outcome.parameters, expected.parameters);
    EXPECT_EQ(outcome.log, expected.log);
  }
}

TEST(DropCompute, TheMicroBatchInFlightIsLostAtTheThreshold) {
  SimulatedRun setup{.micro_batches = 3, .delays = {slow_third_worker()}};
  const auto outcome = setup.run(DropCompute(from_seconds(3.1), Preempt::discard, 1.0 / 3));
  // Worker 0 needs 3.00 s, worker 1 3.75 s (two kept), worker 2 6.00 s (one kept).
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 1 at 3.600 s: kept 6, dropped 3",
                             "step 2 at 7.200 s: kept 6, dropped 3",
                         }));
  const Account& slow = outcome.totals.accounts[2];
  EXPECT_EQ(slow[Activity::compute], from_seconds(4));
  EXPECT_EQ(slow[Activity::discarded], from_seconds(2.2));  // 1.1 s of the second micro-batch, twice
  EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>{0, 2, 4}));
}

TEST(DropCompute, AStartedMicroBatchFinishesInTheReferenceCodesVariant) {
  SimulatedRun setup{.micro_batches = 3, .delays = {slow_third_worker()}};
  const auto outcome = setup.run(DropCompute(from_seconds(3.1), Preempt::microbatch, 1.0 / 3));
  // Worker 1 finishes its third at 3.75 s, worker 2 its second at 4.00 s and starts no third.
  EXPECT_EQ(outcome.log.front(), "step 1 at 4.500 s: kept 8, dropped 1");
}

TEST(DropCompute, AStartedBackwardPassFinishesInTheOtherVariant) {
  SimulatedRun setup{.micro_batches = 3, .delays = {slow_third_worker()}};
  // Forward share 0.6: worker 1's third forward pass ends at 2.5 + 0.75 = 3.25 s, past the threshold, and
  // is thrown away; worker 2's second ends at 2 + 1.2 = 3.2 s, also thrown away.
  const auto early = setup.run(DropCompute(from_seconds(3.1), Preempt::backward, 0.6));
  EXPECT_EQ(early.log.front(), "step 1 at 3.750 s: kept 6, dropped 3");
  // Share 0.5: they end at 3.125 s and 3.0 s; only worker 2's backward pass has begun, and ends at 4 s.
  const auto late = setup.run(DropCompute(from_seconds(3.1), Preempt::backward, 0.5));
  EXPECT_EQ(late.log.front(), "step 1 at 4.500 s: kept 7, dropped 2");
}

TEST(DropCompute, TheDivisorStaysNTimesM) {
  SimulatedRun setup{.micro_batches = 3, .rate = 0.5, .budget = {.steps = 1}, .delays = {slow_third_worker()}};
  const auto outcome = setup.run(DropCompute(from_seconds(3.1), Preempt::discard, 1.0 / 3));
  const std::vector<MicroBatch> kept = {{Rank{0}, 0, 0}, {Rank{0}, 0, 1}, {Rank{0}, 0, 2},
                                        {Rank{1}, 0, 0}, {Rank{1}, 0, 1}, {Rank{2}, 0, 0}};
  for (std::size_t i = 0; i < 4; ++i) {
    double sum = 0;
    for (const MicroBatch& micro_batch : kept) sum += 1.0 - PullObjective::target(micro_batch, i);
    EXPECT_NEAR(outcome.parameters[i], 1 - 0.5 * sum / 9, 1e-5);
  }
}

using Normalisation = DropComputeOptions::Normalisation;

DropCompute normalised(double threshold_s, Normalisation normalisation, std::optional<double> mean_drop_rate = {}) {
  return DropCompute({.threshold = make_fixed_threshold(from_seconds(threshold_s)),
                      .normalisation = normalisation,
                      .mean_drop_rate = mean_drop_rate});
}

TEST(DropCompute, WithoutThresholdEveryNormalisationEqualsSynchronousSgd) {
  SimulatedRun setup{.micro_batches = 3, .momentum = 0.9, .budget = {.steps = 20}, .delays = {slow_third_worker()}};
  const auto expected = setup.run(SyncSgd());
  for (const Normalisation normalisation :
       {Normalisation::constant, Normalisation::computed, Normalisation::mean_rate}) {
    const auto outcome = setup.run(normalised(HUGE_VAL, normalisation, 0.3));
    EXPECT_EQ(outcome.parameters, expected.parameters);
    EXPECT_EQ(outcome.log, expected.log);
  }
}

TEST(DropCompute, EachNormalisationHasItsDivisor) {
  SimulatedRun setup{.micro_batches = 3, .rate = 0.5, .budget = {.steps = 1}, .delays = {slow_third_worker()}};
  double sum = 0;  // of the six that end in time
  for (const MicroBatch& micro_batch : std::vector<MicroBatch>{
           {Rank{0}, 0, 0}, {Rank{0}, 0, 1}, {Rank{0}, 0, 2}, {Rank{1}, 0, 0}, {Rank{1}, 0, 1}, {Rank{2}, 0, 0}})
    sum += 1.0 - PullObjective::target(micro_batch, 0);
  const auto divisor = [&](Normalisation normalisation, std::optional<double> mean_drop_rate = {}) {
    const auto outcome = setup.run(normalised(3.1, normalisation, mean_drop_rate));
    return 0.5 * sum / (1 - static_cast<double>(outcome.parameters[0]));
  };
  EXPECT_NEAR(divisor(Normalisation::constant), 9, 1e-4);
  EXPECT_NEAR(divisor(Normalisation::computed), 6, 1e-4);
  EXPECT_NEAR(divisor(Normalisation::mean_rate, 0.25), 6.75, 1e-4);
}

TEST(DropCompute, TheComputedCountIsOneNumberMoreInTheAllReduce) {
  SimulatedRun setup{.micro_batches = 3, .budget = {.steps = 5}};
  const auto constant = setup.run(normalised(3.1, Normalisation::constant)).totals;
  const auto computed = setup.run(normalised(3.1, Normalisation::computed)).totals;
  EXPECT_EQ(computed.collectives, constant.collectives);
  EXPECT_EQ(computed.bytes - constant.bytes, Bytes{5 * 2 * (3 - 1) * 4});
}

TEST(DropCompute, AStepOfNothingIsAZeroGradientForEveryNormalisation) {
  SimulatedRun setup{.micro_batches = 2, .budget = {.steps = 3}};
  for (const Normalisation normalisation :
       {Normalisation::constant, Normalisation::computed, Normalisation::mean_rate}) {
    const auto outcome = setup.run(normalised(0.5, normalisation, 0.9));
    EXPECT_EQ(outcome.rounds.back().kept, 0);
    EXPECT_EQ(outcome.parameters, std::vector<float>(4, 1.0f));
  }
}

// Every step takes as long as every other, so what the automatic threshold expects to be dropped is dropped: the
// mean rate and the count are the same divisor.
TEST(DropCompute, TheMeanRateIsTheOneThatTheAutomaticThresholdExpects) {
  SimulatedRun setup{.workers = 6,
                     .micro_batches = 3,
                     .budget = {.steps = 20},
                     .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, 0.2, 0.1, 0.0, 2.0})}};
  const auto run = [&](Normalisation normalisation) {
    return setup.run(DropCompute({.threshold = make_automatic_threshold({.warmup_steps = 2, .calibration_steps = 4}),
                                  .normalisation = normalisation}));
  };
  const auto expected = run(Normalisation::computed);
  EXPECT_EQ(expected.rounds[5].dropped, 0);
  EXPECT_GT(expected.rounds[6].dropped, 0);
  const auto found = run(Normalisation::mean_rate).parameters;
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected.parameters[i], 1e-5);
}

TEST(DropCompute, WhatIsDroppedIsNotComputed) {
  auto objective = std::make_shared<PullObjective>();
  SimulatedRun setup{.micro_batches = 3, .delays = {slow_third_worker()}, .objective = objective};
  setup.run(DropCompute(from_seconds(3.1), Preempt::discard, 1.0 / 3));
  EXPECT_EQ(objective->evaluations, 12);  // 6 kept of 9, two steps
  EXPECT_FALSE(objective->evaluated.contains({Rank{2}, 0, 1}));
}

TEST(DropCompute, AWorkerWithoutAnyMicroBatchJoinsWithZero) {
  SimulatedRun setup{.micro_batches = 2,
                     .rate = 0.5,
                     .budget = {.steps = 1},
                     .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.0, 99.0})}};
  const auto outcome = setup.run(DropCompute(from_seconds(2.5), Preempt::discard, 1.0 / 3));
  EXPECT_EQ(outcome.log.front(), "step 1 at 3.000 s: kept 4, dropped 2");
}

TEST(DropCompute, AStepThatLosesEverythingGoesOnAlongTheMomentum) {
  // The first step takes 1 s, in time; from the second step on each micro-batch takes 9 s, too late.
  class SlowFromTheSecondStep : public DelayProcess {
   public:
    void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
      for (double& added : added_s) added += stream.step > Step{0} ? 8 : 0;
    }
    double mean_s() const override { return 0; }
  };
  SimulatedRun setup{
      .momentum = 0.9, .rate = 0.5, .budget = {.steps = 2}, .delays = {std::make_shared<SlowFromTheSecondStep>()}};
  const auto outcome = setup.run(DropCompute(from_seconds(2), Preempt::discard, 1.0 / 3));
  for (std::size_t i = 0; i < 4; ++i) {
    double v = 0;  // the first step's mean gradient
    for (int k = 0; k < 3; ++k) v += (1.0 - PullObjective::target({Rank{k}, 0, 0}, i)) / 3;
    EXPECT_NEAR(outcome.parameters[i], 1 - 0.5 * v - 0.5 * 0.9 * v, 1e-5);
  }
  EXPECT_EQ(outcome.rounds[1].kept, 0);
}

TEST(DropCompute, AStepWithoutAnyMicroBatchKeepsWorkersInConsensus) {
  // Nobody finishes anything in time, twice; the state stays one, and so do later steps.
  SimulatedRun setup{.workers = 6, .momentum = 0.9, .budget = {.steps = 2}};
  Executor executor(0);
  auto objective = std::make_shared<PullObjective>();
  Training training(objective, make_sgd({.momentum = 0.9}), {}, executor);
  const auto start = training.initial_state();
  const Gradient nothing = training.share(Gradient());
  EXPECT_EQ(training.descend(start, nothing / 6, 0.1), training.descend(start, nothing / 6, 0.1));
  EXPECT_EQ(setup.run(DropCompute(from_seconds(0.5), Preempt::discard, 1.0 / 3)).rounds.size(), 2u);
}

// 0.5 s of vain work and 0.5 s of network a round; the guard is for those budgets that would never be used up.
TEST(DropCompute, AThresholdBelowEveryMicroBatchEndsABudgetOfSamplesWithAReason) {
  const DropCompute nothing_in_time(from_seconds(0.5), Preempt::discard, 1.0 / 3);
  SimulatedRun setup{.budget = {.samples = 1000}, .objective = nullptr};
  try {
    setup.run(nothing_in_time);
    FAIL() << "it came to an end";
  } catch (const RunFailure& failure) {
    EXPECT_THAT(failure.what(), testing::HasSubstr("at 1001.000000 s: nobody has finished a micro-batch in the last "
                                                   "1000 rounds"));
  }
  setup.budget.seconds = 1500;
  EXPECT_EQ(setup.run(nothing_in_time).rounds.size(), 1500u);
}

// Eq. 5 of the paper: E[completed] = sum over m of Phi((tau - m mu) / (sigma sqrt(m))).
TEST(DropCompute, KeepsAsManyMicroBatchesAsEquationFiveSays) {
  class NormalDuration : public DelayProcess {  // independent of the delays under test elsewhere
   public:
    void add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const override {
      for (std::size_t i = 0; i < added_s.size(); ++i)
        added_s[i] += 0.2 * quantile(boost::math::normal(), stream.uniform(first + static_cast<std::uint32_t>(i)));
    }
    double mean_s() const override { return 0; }
  };
  constexpr int workers = 64, m = 12, steps = 200;
  SimulatedRun setup{.workers = workers,
                     .micro_batches = m,
                     .budget = {.steps = steps},
                     .delays = {std::make_shared<NormalDuration>()},
                     .objective = nullptr};
  const boost::math::normal standard;
  for (const double tau : {10.0, 12.0, 13.0}) {
    const auto outcome = setup.run(DropCompute(from_seconds(tau), Preempt::discard, 1.0 / 3));
    double expected = 0;
    for (int j = 1; j <= m; ++j) expected += cdf(standard, (tau - j) / (0.2 * std::sqrt(j)));
    double kept = 0;
    for (const StepRow& round : outcome.rounds) kept += static_cast<double>(round.kept);
    // 12,800 draws of a count whose standard deviation is below 0.7: four standard errors.
    EXPECT_NEAR(kept / (workers * steps), expected, 4 * 0.7 / std::sqrt(workers * steps));
  }
}

std::string faults_of(const std::string& keys, double shortest_micro_batch_s = 0) {
  SettingsDocument document(parse_toml(keys, "test.toml"));
  Settings settings = document.root();
  const AlgorithmContext context{.workers = 4,
                                 .micro_batches = 3,
                                 .steps_per_epoch = 100,
                                 .total_steps = 1000,
                                 .shortest_micro_batch_s = shortest_micro_batch_s};
  EXPECT_NE(make_drop_compute(settings, context), nullptr);
  return document.check().report();
}

TEST(DropComputeSettings, AllPartsAreReadTogether) {
  EXPECT_EQ(faults_of("threshold_s = 0.1"), "");
  EXPECT_EQ(faults_of(R"(
threshold = { rule = "automatic", search = "reference", calibration_steps = 20, maximum_drop_rate = 0.1 }
preempt = "discard"
normalisation = "mean-rate"
compensation = "extra-steps"
redundancy = 0.11
learning_rate_schedule = "stretched")"),
            "");
}

TEST(DropComputeSettings, TheMeanRateIsGivenOrExpectedByTheThreshold) {
  using testing::HasSubstr;
  const std::string automatic = "threshold = { rule = \"automatic\" }\nnormalisation = \"mean-rate\"\n";
  EXPECT_EQ(faults_of(automatic), "");
  EXPECT_THAT(faults_of(automatic + "preempt = \"microbatch\""), HasSubstr("mean_drop_rate"));
  const std::string fixed = "threshold_s = 1\nnormalisation = \"mean-rate\"\n";
  EXPECT_THAT(faults_of(fixed), HasSubstr("mean_drop_rate"));
  EXPECT_EQ(faults_of(fixed + "mean_drop_rate = 0.1"), "");
  EXPECT_THAT(faults_of(fixed + "mean_drop_rate = 1"), HasSubstr("mean_drop_rate = 1"));
  EXPECT_THAT(faults_of(automatic + "compensation = \"carry-over\""), HasSubstr("mean_drop_rate"));
  EXPECT_EQ(faults_of(automatic + "compensation = \"carry-over\"\nmean_drop_rate = 0.1"), "");
}

// Where the shortest micro-batch takes 0.4 s a threshold of 0.4 s can be met; where it need only finish its forward
// pass, of a quarter, for something of it to count, one of 0.1 s; where it finishes once it has begun, any.
TEST(DropComputeSettings, AThresholdThatNoMicroBatchCanMeetIsAFault) {
  struct Case {
    const char* preempt;
    double least_s;
  };
  for (const Case& tried : {Case{"discard", 0.4}, {"backward", 0.1}, {"layer", 0.1}, {"microbatch", 1e-6}}) {
    const std::string preempt = tried.preempt;
    const double least_s = tried.least_s;
    const auto faults = [&](double threshold_s, const char* form) {
      return faults_of(fmt::format("preempt = \"{}\"\nforward_share = 0.25\n", preempt) +
                           fmt::format(fmt::runtime(form), threshold_s),
                       0.4);
    };
    for (const char* form : {"threshold_s = {}", "threshold = {{ rule = \"fixed\", threshold_s = {} }}"}) {
      EXPECT_EQ(faults(least_s, form), "") << preempt;
      EXPECT_EQ(faults(HUGE_VAL, form), "") << preempt;
      if (least_s > 1e-6) {
        EXPECT_THAT(faults(least_s - 1e-6, form),
                    testing::AllOf(testing::HasSubstr(fmt::format("threshold_s = {}", least_s - 1e-6)),
                                   testing::HasSubstr(fmt::format("must be at least {:g} s", least_s))))
            << preempt;
      }
    }
    EXPECT_EQ(faults_of(fmt::format("preempt = \"{}\"\nthreshold = {{ rule = \"automatic\" }}", preempt), 0.4), "");
  }
}

TEST(DropComputeSettings, EveryFaultIsReportedAtOnce) {
  const std::string faults = faults_of(
      "threshold_s = -1\npreempt = \"never\"\nnormalisation = \"other\"\ncompensation = \"all\"\nforward_share = 2");
  for (const char* key : {"threshold_s = -1", "preempt = \"never\"", "normalisation = \"other\"",
                          "compensation = \"all\"", "forward_share = 2"})
    EXPECT_THAT(faults, testing::HasSubstr(key));
}

}  // namespace
}  // namespace syncopate
