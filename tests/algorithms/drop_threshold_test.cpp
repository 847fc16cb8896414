// Runs with the rules for DropCompute's threshold.
#include "algorithms/synchronous/drop_threshold.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/golden_search.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"
#include "workers/theory/sampled_times.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using Statistic = AdaptiveThresholdOptions::Statistic;

DropCompute with(DropThreshold threshold) { return DropCompute({.threshold = std::move(threshold)}); }

// The delay environment of the paper's experiments: 64 workers, 12 micro-batches of 1 s, T^c = 0.5 s.
SimulatedRun delay_environment(int steps) {
  return {.workers = 64,
          .micro_batches = 12,
          .budget = {.steps = steps},
          .delays = {tabulated_lognormal_delay(0.5)},
          .objective = nullptr};
}

// Micro-batch times of the workers in these steps, drawn outside of any run.
std::vector<double> times_of(const SimulatedRun& setup, int first_step, int steps) {
  const ComputeTime compute_time(1, setup.base_s, {}, setup.delays);  // SimulatedRun's seed
  std::vector<double> times;
  std::vector<Duration> row(static_cast<std::size_t>(setup.micro_batches));
  for (int n = 0; n < setup.workers; ++n)
    for (int i = first_step; i < first_step + steps; ++i) {
      compute_time.durations(Rank{n}, Step{i}, 0, row);
      for (const Duration duration : row) times.push_back(to_seconds(duration));
    }
  return times;
}

double dropped_share(const SimulatedRun::Outcome& outcome, std::size_t first_round) {
  double kept = 0, dropped = 0;
  for (std::size_t i = first_round; i < outcome.rounds.size(); ++i) {
    kept += static_cast<double>(outcome.rounds[i].kept);
    dropped += static_cast<double>(outcome.rounds[i].dropped);
  }
  return dropped / (kept + dropped);
}

// Variance, over workers and steps, of the share of micro-batches that a worker loses in a step.
double variance_of_loss(const std::vector<double>& times, int micro_batches, double threshold) {
  double sum = 0, squares = 0, count = 0;
  for (auto time = times.begin(); time != times.end(); ++count) {
    double end = 0, lost = 0;
    for (int m = 0; m < micro_batches; ++m) lost += (end += *time++) < threshold ? 0.0 : 1.0 / micro_batches;
    sum += lost;
    squares += lost * lost;
  }
  return squares / count - std::pow(sum / count, 2);
}

TEST(AutomaticThreshold, PredictedAndRealisedDropRatesAgree) {
  const SimulatedRun setup = delay_environment(250);
  const auto outcome = setup.run(with(make_automatic_threshold({})));
  const auto times = times_of(setup, 6, 44);
  const auto expected = search_threshold({times, 64, 44, 12}, setup.network_s, SpeedupForm::throughput);
  EXPECT_EQ(outcome.rounds[49].dropped, 0);
  // Some worker is always late, so each step lasts until the threshold. The first one also gathers the times.
  const Duration step = from_seconds(expected.threshold) + from_seconds(0.5);
  EXPECT_NEAR(to_seconds(outcome.rounds[50].duration), to_seconds(step) + 0.5, 2e-9);
  for (std::size_t i = 51; i < outcome.rounds.size(); ++i)
    EXPECT_NEAR(to_seconds(outcome.rounds[i].duration), to_seconds(step), 2e-9);
  // `error` is four standard errors of the difference between 64 x 44 recorded and 64 x 200 realised worker-steps.
  const double variance = variance_of_loss(times, 12, expected.threshold);
  const double error = 4 * std::sqrt(variance / (64 * 44) + variance / (64 * 200));
  EXPECT_LT(error, 0.015);
  EXPECT_NEAR(dropped_share(outcome, 50), expected.drop_rate, error);
  EXPECT_GT(expected.drop_rate, 0.08);
}

TEST(AutomaticThreshold, TheRealisedSpeedupIsThePredictedOne) {
  const SimulatedRun setup = delay_environment(250);
  const auto outcome = setup.run(with(make_automatic_threshold({})));
  const auto baseline = setup.run(SyncSgd());
  const auto times = times_of(setup, 6, 44);
  const auto expected = search_threshold({times, 64, 44, 12}, setup.network_s, SpeedupForm::throughput);
  const auto mean_s = [](const SimulatedRun::Outcome& run) {  // over the last 199 steps
    return to_seconds(run.rounds.back().end - run.rounds[50].end) / 199;
  };
  const double realised = (1 - dropped_share(outcome, 51)) * mean_s(baseline) / mean_s(outcome);
  // The slowest of 64 workers takes 24 s and varies by 1.5 s from step to step; its mean over 44 steps is off by 1 %.
  EXPECT_NEAR(realised, expected.effective_speedup, 0.03 * expected.effective_speedup);
}

TEST(AutomaticThreshold, TheOtherSearchesAndTheCapAreThoseOfTheSearch) {
  const SimulatedRun setup = delay_environment(60);
  const auto times = times_of(setup, 6, 44);
  for (const AutomaticThresholdOptions& options : {AutomaticThresholdOptions{.form = SpeedupForm::effective},
                                                   AutomaticThresholdOptions{.form = SpeedupForm::reference},
                                                   AutomaticThresholdOptions{.maximum_drop_rate = 0.03}}) {
    const auto expected = search_threshold({times, 64, 44, 12}, 0.5, options.form, options.maximum_drop_rate);
    const auto outcome = setup.run(with(make_automatic_threshold(options)));
    EXPECT_NEAR(to_seconds(outcome.rounds.back().duration), expected.threshold + 0.5, 2e-9);
  }
}

// Sleeps distinguish the two clocks. A timer around micro-batches includes the sleep after the last micro-batch of a
// step; the step's clock does not.
TEST(AutomaticThreshold, TheCalibrationTakesTheClockItIsGiven) {
  using Clock = AutomaticThresholdOptions::Clock;
  constexpr int warmup = 2, steps = 30, workers = 16, micro_batches = 4;
  const auto sleeps =
      std::make_shared<Pauses>(1, 0, std::vector<std::shared_ptr<const DelayProcess>>{exponential_delay(1)});
  const SimulatedRun setup{.workers = workers,
                           .micro_batches = micro_batches,
                           .budget = {.steps = 60},
                           .pauses = sleeps,
                           .objective = nullptr};
  for (const Clock clock : {Clock::step, Clock::micro_batch}) {
    std::vector<double> times, slowest(steps);
    double last_sleep = 0;  // each worker's sleep at the end of recorded steps
    for (int n = 0; n < workers; ++n)
      for (int i = 0; i < steps; ++i) {
        double sum = 0, before = 0;
        for (std::uint32_t m = 0; m < micro_batches; ++m) {
          const double sleep = to_seconds(sleeps->sleep(Rank{n}, Step{warmup + i}, m));
          times.push_back(1 + (clock == Clock::step ? before : sleep));
          sum += times.back();
          before = sleep;
        }
        slowest[static_cast<std::size_t>(i)] = std::max(slowest[static_cast<std::size_t>(i)], sum);
        if (i + 1 == steps) last_sleep += before / workers;
        if (i == 0) last_sleep -= to_seconds(sleeps->sleep(Rank{n}, Step{warmup - 1}, micro_batches - 1)) / workers;
      }
    const auto outcome = setup.run(with(make_automatic_threshold(
        {.form = SpeedupForm::reference, .warmup_steps = warmup, .calibration_steps = steps, .clock = clock})));
    const double wall = to_seconds(outcome.rounds[warmup + steps - 1].end - outcome.rounds[warmup - 1].end);
    const double computing = std::accumulate(slowest.begin(), slowest.end(), 0.0) / steps;
    const auto expected = search_threshold({times, workers, steps, micro_batches},
                                           (wall + last_sleep) / steps - computing, SpeedupForm::reference);
    EXPECT_NEAR(to_seconds(outcome.rounds.back().duration), expected.threshold + 0.5, 5e-9);
    EXPECT_GT(expected.drop_rate, 0.05);
  }
}

TEST(AutomaticThreshold, WarmUpStepsAreNotRecorded) {
  // The first two steps are ten times as long. If they were recorded, a threshold would cut only these.
  class SlowStart : public DelayProcess {
   public:
    void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
      for (double& added : added_s) added += stream.step < Step{2} ? 9 : 0;
    }
    double mean_s() const override { return 0; }
  };
  const SimulatedRun setup{.budget = {.steps = 12}, .delays = {std::make_shared<SlowStart>()}};
  const auto outcome = setup.run(with(make_automatic_threshold({.warmup_steps = 2, .calibration_steps = 4})));
  EXPECT_EQ(dropped_share(outcome, 0), 0);
}

TEST(AutomaticThreshold, WithoutSpreadItIsSynchronousSgdAndOneGather) {
  const SimulatedRun setup{.micro_batches = 3, .momentum = 0.9, .budget = {.steps = 12}};
  const auto expected = setup.run(SyncSgd());
  const auto outcome = setup.run(with(make_automatic_threshold({.warmup_steps = 1, .calibration_steps = 4})));
  EXPECT_EQ(outcome.parameters, expected.parameters);
  EXPECT_EQ(outcome.totals.collectives, expected.totals.collectives + 1);
  EXPECT_EQ(outcome.totals.end - expected.totals.end, from_seconds(0.5));
  // Each of 3 workers sends 4 x 3 times and one mean, of 8 bytes each, to the 2 others.
  EXPECT_EQ(outcome.totals.bytes - expected.totals.bytes, Bytes{2 * 3 * 13 * 8});
}

TEST(AutomaticThreshold, EachRunCalibratesAnew) {
  const DropCompute algorithm = with(make_automatic_threshold({.warmup_steps = 1, .calibration_steps = 10}));
  SimulatedRun setup = delay_environment(20);
  const auto first = setup.run(algorithm);
  EXPECT_EQ(setup.run(algorithm).log, first.log);
  setup.base_s = 10;
  EXPECT_EQ(setup.run(algorithm).rounds[10].dropped, 0);
}

TEST(PerProcessCache, ComputesOnceForTheSameNumbersAndAnewForEqualOnes) {
  int computed = 0;
  PerProcessCache once;
  const auto ask = [&](const SharedNumbers& numbers) { return *once.get<int>(numbers, [&] { return ++computed; }); };
  SharedNumbers numbers = std::make_shared<const std::vector<double>>(2, 1.0);
  EXPECT_EQ(ask(numbers), 1);
  EXPECT_EQ(ask(numbers), 1);
  for (int gather = 2; gather < 10; ++gather) {
    numbers = nullptr;  // its memory may be reused
    numbers = std::make_shared<const std::vector<double>>(2, 1.0);
    EXPECT_EQ(ask(numbers), gather);
  }
}

std::vector<StepTime> exact(std::initializer_list<double> seconds) {
  std::vector<StepTime> times;
  for (const double time : seconds) times.push_back({time});
  return times;
}

TEST(AdaptiveThreshold, AQuantileIsTheFirstTimeThatNoMoreThanTheRestExceed) {
  EXPECT_DOUBLE_EQ(adaptive_threshold(exact({4, 1, 3, 2}), {.quantile = 0.5}), 2);
  EXPECT_DOUBLE_EQ(adaptive_threshold(exact({4, 1, 3, 2}), {.quantile = 0.51}), 3);
  EXPECT_DOUBLE_EQ(adaptive_threshold(exact({10, 0, 2, 9, 8, 4, 6, 1, 5, 7}), {.quantile = 0.9}), 9);
  EXPECT_DOUBLE_EQ(adaptive_threshold(exact({7}), {.quantile = 0.9}), 7);
}

TEST(AdaptiveThreshold, DeviationsAreMedianAbsoluteDeviations) {
  const AdaptiveThresholdOptions options{.statistic = Statistic::median_and_deviations, .deviations = 4};
  // The median is 3. The deviations 2, 1, 0, 1, 97 have the median 1: one outlier changes neither.
  EXPECT_DOUBLE_EQ(adaptive_threshold(exact({1, 2, 3, 4, 100}), options), 7);
  // 4 and 100 are only known to exceed 3.5. The median is still 3. Deviations are 0, 1, 2, and twice at least 0.5.
  std::vector<StepTime> times = exact({1, 2, 3});
  times.insert(times.end(), 2, {.seconds = 3.5, .at_least = true});
  // A share of 4/5 deviates by more than 0, and 4/5 x 1/2 by more than 1. So 1 is the first that at most half exceed.
  EXPECT_DOUBLE_EQ(adaptive_threshold(times, options), 7);
}

// Two times are only known to be longer than 1 and 2. 2/5 of the other times exceed 7 and 3/5 exceed 6, so 7 is the
// median. The two times' distances from it are unknown. 6/7 of all times deviate by more than 0; among those with a
// known deviation 3/4 deviate by more than 1 and 1/2 by more than 2.5. That is 3/7 of all, less than half.
TEST(AdaptiveThreshold, WhatWasCutOffBeforeTheMedianMayHaveEndedAnywhereFromThere) {
  std::vector<StepTime> times = exact({4, 6, 7, 9.5, 20});
  for (const double time : {1, 2}) times.push_back({.seconds = time, .at_least = true});
  EXPECT_DOUBLE_EQ(adaptive_threshold(times, {.quantile = 0.5}), 7);
  const AdaptiveThresholdOptions options{.statistic = Statistic::median_and_deviations, .deviations = 2};
  EXPECT_DOUBLE_EQ(adaptive_threshold(times, options), 7 + 2 * 2.5);
}

// Times of remission in weeks with 6-mercaptopurine: the textbook example of the estimate (Freireich et al. 1963).
// Shares longer than 6, 7, 10, 13, 16, 22, 23 weeks: 0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448.
TEST(AdaptiveThreshold, TimesThatWereCutOffCountAsKaplanAndMeierSay) {
  std::vector<StepTime> weeks = exact({6, 6, 6, 7, 10, 13, 16, 22, 23});
  for (const double time : {6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35}) weeks.push_back({time, true});
  const auto at_share_exceeding = [&](double share) { return adaptive_threshold(weeks, {.quantile = 1 - share}); };
  EXPECT_EQ(at_share_exceeding(0.858), 6);
  EXPECT_EQ(at_share_exceeding(0.856), 7);
  EXPECT_EQ(at_share_exceeding(0.754), 10);
  EXPECT_EQ(at_share_exceeding(0.752), 13);
  EXPECT_EQ(at_share_exceeding(0.628), 16);
  EXPECT_EQ(at_share_exceeding(0.626), 22);
  EXPECT_EQ(at_share_exceeding(0.449), 23);
  // Nothing is known beyond the longest time, 35. So this time is lengthened by the excess of the shares, 0.448 - 0.4.
  EXPECT_NEAR(at_share_exceeding(0.4), 35 * (1 + 0.0482), 0.002);
}

TEST(AdaptiveThreshold, AWorkerThatWasCutOffWouldHaveTakenLonger) {
  const auto at = [](double s) { return later(start_time, from_seconds(s)); };
  TimedStep step{.start = at(1), .ends = {at(2), at(3), at(4)}, .arrival = at(5), .offered = 3};
  EXPECT_EQ(time_of(step).seconds, 3);
  EXPECT_FALSE(time_of(step).at_least);
  step.offered = 2;  // one of the three was carried over to this step
  EXPECT_EQ(time_of(step).seconds, 2);
  step.offered = 4;
  EXPECT_EQ(time_of(step).seconds, 4);
  EXPECT_TRUE(time_of(step).at_least);
}

TEST(AdaptiveThreshold, InTheLongRunTheQuantileIsTheShareOfWorkersInTime) {
  // One micro-batch per step, so each late worker is one dropped micro-batch.
  const SimulatedRun setup{
      .workers = 64, .budget = {.steps = 1040}, .delays = {exponential_delay(0.5)}, .objective = nullptr};
  const auto outcome = setup.run(with(make_adaptive_threshold({.quantile = 0.9})));
  EXPECT_EQ(outcome.rounds[39].dropped, 0);  // there is no threshold before the window is full
  // 64,000 worker-steps are under the threshold, and the same number sets it, so the standard error is 0.3 sqrt(2 /
  // 64000) = 0.0017. The tolerance is four times this error.
  EXPECT_NEAR(dropped_share(outcome, 40), 0.1, 4 * 0.0017);
}

TEST(AdaptiveThreshold, FollowsASlowDownThatMakesEverybodyLate) {
  class SlowFrom : public DelayProcess {
   public:
    void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
      for (double& added : added_s) added += stream.step < Step{100} ? 0 : 4;  // five times as slow, or more
    }
    double mean_s() const override { return 0; }
  };
  for (const int micro_batches : {1, 4}) {
    const SimulatedRun setup{.workers = 16,
                             .micro_batches = micro_batches,
                             .budget = {.steps = 300},
                             .delays = {exponential_delay(0.1), std::make_shared<SlowFrom>()},
                             .objective = nullptr};
    const auto outcome = setup.run(with(make_adaptive_threshold({.quantile = 0.9})));
    EXPECT_GT(outcome.rounds[105].dropped, 8 * micro_batches);  // at first nearly all is lost
    EXPECT_LT(dropped_share(outcome, 200), 0.15);
  }
}

TEST(AdaptiveThreshold, WithoutSpreadNothingIsDropped) {
  const SimulatedRun setup{.micro_batches = 3, .budget = {.steps = 60}, .objective = nullptr};
  for (const Statistic statistic : {Statistic::quantile, Statistic::median_and_deviations}) {
    const auto outcome = setup.run(with(make_adaptive_threshold({.statistic = statistic})));
    EXPECT_EQ(dropped_share(outcome, 0), 0);
  }
}

// Micro-batches of step i take 1 + 4^i s, so every threshold is exceeded. There is no threshold before an update has
// filled the window, which holds whole updates.
TEST(AdaptiveThreshold, NothingIsDroppedBeforeTheWindowIsFull) {
  class Slowing : public DelayProcess {
   public:
    void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
      for (double& added : added_s) added += std::pow(4.0, static_cast<double>(stream.step.value()));
    }
    double mean_s() const override { return 0; }
  };
  struct Case {
    int window, update, first;  // the first step with a threshold
  };
  for (const auto& [window, update, first] : {Case{1, 1, 1}, {4, 2, 4}, {5, 2, 6}, {7, 5, 10}, {8, 3, 9}, {5, 5, 5}}) {
    const AdaptiveThresholdOptions options{.window_steps = window, .update_every_steps = update};
    const SimulatedRun setup{.budget = {.steps = 12}, .delays = {std::make_shared<Slowing>()}, .objective = nullptr};
    EXPECT_EQ(make_adaptive_threshold(options).traits.begins_after, Step{first});
    const auto rounds = setup.run(with(make_adaptive_threshold(options))).rounds;
    ASSERT_EQ(rounds.size(), 12u);
    for (int step = 0; step < 12; ++step)
      EXPECT_EQ(rounds[static_cast<std::size_t>(step)].dropped > 0, step >= first) << window << " by " << update;
  }
}

TEST(AdaptiveThreshold, EveryUpdateIsOneGather) {
  const SimulatedRun setup{.micro_batches = 3, .budget = {.steps = 60}, .objective = nullptr};
  const auto plain = setup.run(SyncSgd());
  const auto outcome = setup.run(with(make_adaptive_threshold({.window_steps = 10, .update_every_steps = 5})));
  EXPECT_EQ(outcome.totals.collectives, plain.totals.collectives + 12);
  EXPECT_EQ(outcome.totals.bytes - plain.totals.bytes, Bytes{12 * 2 * 3 * 5 * 8});
}

// Thresholds of DropCompute as written in experiment files.

using testing::HasSubstr;

struct Reading {
  DropThreshold threshold;
  std::string faults;
  std::string resolved;
};

Reading read(const std::string& keys, const AlgorithmContext& context = {.total_steps = 1000}) {
  SettingsDocument document(parse_toml(keys, "test.toml"));
  Settings settings = document.root();
  Reading reading;
  reading.threshold = read_drop_threshold(settings, context);
  reading.faults = document.check().report();
  reading.resolved = write_toml(document.resolved());
  return reading;
}

TEST(DropThresholdSettings, AFixedThresholdIsANumberOrATable) {
  for (const char* keys : {"threshold_s = 0.05", R"(threshold = { rule = "fixed", threshold_s = 0.05 })"}) {
    const auto reading = read(keys);
    EXPECT_EQ(reading.faults, "");
    EXPECT_EQ(reading.threshold.begin()->current(), from_seconds(0.05));
  }
  EXPECT_EQ(read("threshold_s = inf").threshold.begin()->current(), longest_duration);
}

TEST(DropThresholdSettings, ExactlyOneOfBothFormsIsWritten) {
  EXPECT_THAT(read("").faults, HasSubstr("threshold_s"));
  EXPECT_THAT(read(R"(
threshold_s = 1
threshold = { rule = "automatic" })")
                  .faults,
              HasSubstr("threshold_s = 1"));
}

TEST(DropThresholdSettings, ThresholdsAreAboveZero) {
  for (const char* value : {"0", "-1", "nan", "\"auto\""})
    EXPECT_THAT(read(std::string("threshold_s = ") + value).faults, HasSubstr("threshold_s"));
}

TEST(DropThresholdSettings, TheAutomaticRuleRecordsAsManyStepsAsTheReferenceCodeByDefault) {
  const auto reading = read(R"(threshold = { rule = "automatic" })");
  EXPECT_EQ(reading.faults, "");
  EXPECT_THAT(reading.resolved, testing::AllOf(HasSubstr("search = \"throughput\""), HasSubstr("warmup_steps = 6"),
                                               HasSubstr("calibration_steps = 44")));
}

TEST(DropThresholdSettings, EverySearchOfTheAutomaticRuleIsRead) {
  for (const char* search : {"throughput", "s-eff", "reference"}) {
    const auto reading = read(fmt::format(R"(threshold = {{ rule = "automatic", search = "{}" }})", search));
    EXPECT_EQ(reading.faults, "");
    EXPECT_THAT(reading.resolved, HasSubstr(fmt::format("search = \"{}\"", search)));
  }
}

TEST(DropThresholdSettings, FaultsOfTheAutomaticRule) {
  const auto faults = read(R"(threshold = { rule = "automatic", search = "best", calibration_steps = 0, )"
                           R"(warmup_steps = -1, maximum_drop_rate = 1 })")
                          .faults;
  for (const char* key : {"search = \"best\"", "calibration_steps = 0", "warmup_steps = -1", "maximum_drop_rate = 1"})
    EXPECT_THAT(faults, HasSubstr(key));
  EXPECT_THAT(read(R"(threshold = { rule = "automatic", maximum_drop_rate = 0 })").faults,
              HasSubstr("maximum_drop_rate = 0"));
}

TEST(DropThresholdSettings, TheCalibrationHasAClock) {
  for (const char* clock : {"step", "micro-batch"}) {
    const auto reading =
        read(std::string(R"(threshold = { rule = "automatic", calibration_clock = ")") + clock + R"(" })");
    EXPECT_EQ(reading.faults, "");
    EXPECT_EQ(reading.threshold.begin()->times_micro_batches(), clock == std::string("micro-batch"));
  }
  EXPECT_FALSE(read(R"(threshold = { rule = "automatic" })").threshold.begin()->times_micro_batches());
  EXPECT_THAT(read(R"(threshold = { rule = "automatic", calibration_clock = "device" })").faults,
              HasSubstr("calibration_clock = \"device\""));
}

TEST(DropThresholdSettings, TheCalibrationEndsBeforeTheBudget) {
  const std::string keys = R"(threshold = { rule = "automatic" })";
  EXPECT_THAT(read(keys, {.total_steps = 50}).faults, HasSubstr("calibration_steps = 44"));
  EXPECT_EQ(read(keys, {.total_steps = 51}).faults, "");
  EXPECT_EQ(read(keys, {}).faults, "");
}

TEST(DropThresholdSettings, FaultsOfTheAdaptiveRules) {
  for (const char* quantile : {"0", "1", "-0.5", "2"})
    EXPECT_THAT(read(std::string(R"(threshold = { rule = "adaptive-quantile", quantile = )") + quantile + " }").faults,
                HasSubstr("quantile"));
  EXPECT_THAT(read(R"(threshold = { rule = "adaptive-mad", deviations = -1 })").faults, HasSubstr("deviations = -1"));
  EXPECT_THAT(read(R"(threshold = { rule = "adaptive-mad", window_steps = 0 })").faults, HasSubstr("window_steps = 0"));
  EXPECT_THAT(read(R"(threshold = { rule = "adaptive-mad", window_steps = 5, update_every_steps = 6 })").faults,
              HasSubstr("update_every_steps = 6"));
}

TEST(DropThresholdSettings, EveryRuleOfTheTableCanBeWritten) {
  for (const auto& row : drop_thresholds()) {
    const std::string more = row.name == "fixed" ? ", threshold_s = 1" : "";
    EXPECT_EQ(read("threshold = { rule = \"" + std::string(row.name) + "\"" + more + " }").faults, "") << row.name;
  }
  EXPECT_THAT(read(R"(threshold = { rule = "adaptive" })").faults, HasSubstr("adaptive-mad"));
}

// The search for a threshold, compared with an independent computation (tests/golden) and closed forms.

const nlohmann::json& golden() { return golden_searches(SYNCOPATE_SOURCE_DIR); }
Recorded search_case() { return recorded_search_case(golden()); }

// Golden values have nine or more digits after the point.
void expect_close(double found, double expected) { EXPECT_NEAR(found, expected, 1e-9 * std::max(1.0, expected)); }

TEST(ThresholdSearch, TheTimesAreThoseOfTheRecipe) {
  const auto times = search_case().times;
  expect_close(std::accumulate(times.begin(), times.end(), 0.0), golden().at("search_case").at("sum_of_times"));
}

TEST(ThresholdSearch, TheReferenceCodesSearchFindsTheAuthorsThreshold) {
  const Recorded times = search_case();
  const auto& recipe = golden().at("search_case");
  const auto found = search_threshold(times.view, recipe.at("serial_time"), SpeedupForm::reference);
  for (const char* source : {"reference", "authors_function"}) {
    const auto& expected = recipe.at(source);
    expect_close(found.threshold, expected.at("threshold"));
    expect_close(found.drop_rate, expected.at("drop_rate"));
    expect_close(found.time_saved, expected.at("time_saved"));
    expect_close(found.effective_speedup - 1, expected.at("speedup_minus_1"));
  }
  EXPECT_EQ(found.threshold, threshold_grid(times.view).at(recipe.at("reference").at("index")));
}

TEST(ThresholdSearch, TheSearchByEquationSixFindsTheTabulatedThreshold) {
  const Recorded times = search_case();
  const auto& recipe = golden().at("search_case");
  const auto& expected = recipe.at("equation_6");
  const auto found = search_threshold(times.view, recipe.at("serial_time"), SpeedupForm::effective);
  EXPECT_EQ(found.threshold, threshold_grid(times.view).at(expected.at("index")));
  expect_close(found.threshold, expected.at("threshold"));
  expect_close(found.effective_speedup, expected.at("speedup"));
  expect_close(12 * (1 - found.drop_rate), expected.at("kept"));
}

TEST(ThresholdSearch, EquationSixMatchesItsTableThresholdByThreshold) {
  const Recorded times = search_case();
  const auto& recipe = golden().at("search_case");
  std::vector<double> thresholds;
  for (const auto& row : recipe.at("thresholds")) thresholds.push_back(row.at("threshold"));
  const auto effects = threshold_effects(times.view, recipe.at("serial_time"), SpeedupForm::effective, thresholds);
  ASSERT_EQ(effects.size(), 5u);
  for (std::size_t k = 0; k < effects.size(); ++k) {
    expect_close(effects[k].effective_speedup, recipe.at("thresholds")[k].at("speedup"));
    expect_close(12 * (1 - effects[k].drop_rate), recipe.at("thresholds")[k].at("kept"));
  }
}

void expect_sweep(const char* name, SpeedupForm form, std::optional<double> maximum_drop_rate = {}) {
  const auto& sweep = golden().at("sweep");
  ASSERT_FALSE(sweep.at(name).empty());
  for (const auto& row : sweep.at(name)) {
    const Recorded times = recorded(row, sweep.at("steps"), sweep.at("seed"), 1);
    const auto found = search_threshold(times.view, row.at("serial_time"), form, maximum_drop_rate);
    EXPECT_EQ(found.threshold, threshold_grid(times.view).at(row.at("index"))) << row;
    expect_close(found.threshold, row.at("threshold"));
    expect_close(found.effective_speedup, row.at("speedup"));
    expect_close(found.drop_rate, row.at("drop_rate"));
  }
}

TEST(ThresholdSearch, SweepsOverWorkersMicroBatchesAndNoiseMatchTheTables) {
  expect_sweep("equation_6", SpeedupForm::effective);
  expect_sweep("reference", SpeedupForm::reference);
}

TEST(ThresholdSearch, ACapOnTheDropRateTakesTheBestOfTheRest) {
  expect_sweep("equation_6_with_at_most_5_percent_dropped", SpeedupForm::effective, 0.05);
}

TEST(ThresholdSearch, TheGridRunsFromTheEarliestSixthEndToTheLatestEnd) {
  // Two workers, one step, 8 micro-batches of 1 and of 1.5: the 6th ends at 6 and at 9, the last at 8 and at 12.
  std::vector<double> times(16, 1.0);
  std::fill(times.begin() + 8, times.end(), 1.5);
  const auto grid = threshold_grid({times, 2, 1, 8});
  ASSERT_EQ(grid.size(), 200u);
  EXPECT_EQ(grid.front(), 6);
  EXPECT_EQ(grid.back(), 12);
  EXPECT_NEAR(grid[100] - grid[99], 6.0 / 199, 1e-12);
}

TEST(ThresholdSearch, WithFewMicroBatchesTheGridStartsAfterTheFirstHalf) {
  const std::vector<double> times(5, 1.0);
  EXPECT_EQ(threshold_grid({times, 1, 1, 5}).front(), 3);
  EXPECT_EQ(threshold_grid({times, 1, 1, 4}).front(), 2);
  EXPECT_EQ(threshold_grid({times, 1, 1, 3}).front(), 2);
  EXPECT_EQ(threshold_grid({times, 1, 1, 2}).front(), 1);
  EXPECT_EQ(threshold_grid({times, 1, 1, 1}).front(), 1);
}

// Three of 4 workers end two micro-batches at 1 and 2, the straggler at 3 and 6. T^c = 1, so a full step takes 7.
TEST(ThresholdSearch, TheEffectOfAThresholdIsEquationSix) {
  const std::vector<double> times = {1, 1, 1, 1, 1, 1, 3, 3};
  const MicroBatchTimes recorded{times, 4, 1, 2};
  const std::vector<double> thresholds = {2.5, 3.5};
  const auto paper = threshold_effects(recorded, 1, SpeedupForm::effective, thresholds);
  EXPECT_DOUBLE_EQ(paper[0].drop_rate, 2.0 / 8);
  EXPECT_DOUBLE_EQ(paper[0].time_saved, 1 - 3.5 / 7);
  EXPECT_DOUBLE_EQ(paper[0].effective_speedup, 6.0 / 8 * 7 / 3.5);
  EXPECT_DOUBLE_EQ(paper[1].effective_speedup, 7.0 / 8 * 7 / 4.5);
  // With thresholds of 2.5 and 3.5, the last micro-batch that is kept ends at 2 and 3.
  const auto code = threshold_effects(recorded, 1, SpeedupForm::reference, thresholds);
  EXPECT_DOUBLE_EQ(code[0].drop_rate, 2.0 / 8);
  EXPECT_DOUBLE_EQ(code[0].time_saved, 1 - 3.0 / 7);
  EXPECT_DOUBLE_EQ(code[0].effective_speedup, 6.0 / 8 * 7 / 3);
  EXPECT_DOUBLE_EQ(code[1].effective_speedup, 7.0 / 8 * 7 / 4);
}

// Two workers have one micro-batch in each of two steps, of 1 and 4 and then of 1 and 9. T^c = 1. A threshold of 2
// keeps two of four micro-batches, and the steps take 3 + 3 instead of 5 + 10.
TEST(ThresholdSearch, ThroughputCountsAllStepsTogether) {
  const std::vector<double> times = {1, 1, 4, 9};
  const auto effect = threshold_effects({times, 2, 2, 1}, 1, SpeedupForm::throughput, std::vector<double>{2})[0];
  EXPECT_DOUBLE_EQ(effect.drop_rate, 0.5);
  EXPECT_DOUBLE_EQ(effect.time_saved, 1 - 6.0 / 15);
  EXPECT_DOUBLE_EQ(effect.effective_speedup, 2.0 / 4 * 15 / 6);
}

// Micro-batches per time, if a threshold keeps those recorded micro-batches that end before it.
double throughput(const MicroBatchTimes& recorded, double serial_time, double threshold) {
  double kept = 0;
  std::vector<double> slowest(static_cast<std::size_t>(recorded.steps));
  for (std::size_t i = 0; i < recorded.times.size();) {
    const std::size_t step = i / static_cast<std::size_t>(recorded.micro_batches) % slowest.size();
    double end = 0;
    for (int m = 0; m < recorded.micro_batches; ++m) kept += (end += recorded.times[i++]) < threshold ? 1 : 0;
    slowest[step] = std::max(slowest[step], end);
  }
  double time = 0;
  for (const double end : slowest) time += std::min(end, threshold) + serial_time;
  return kept / time;
}

// Pareto times from 2 ms on. At shape 1.2 they have no variance, at 0.8 no mean.
std::vector<double> pareto_times(double shape, std::size_t count, std::uint64_t seed) {
  std::vector<double> times(count);
  for (std::size_t k = 0; k < count; ++k) times[k] = 0.002 * std::pow(1 - splitmix_uniform(seed, k + 1), -1 / shape);
  return times;
}

// Each threshold is found in one record, and applied to another one. There its throughput is compared with that of the
// best of many thresholds.
TEST(ThresholdSearch, UnderHeavyTailsItComesCloseToTheBestFixedThreshold) {
  constexpr int workers = 16, micro_batches = 4, steps = 2000;
  constexpr double serial_s = 0.001;
  for (const double shape : {0.8, 1.05, 1.2, 1.5}) {
    const auto others = pareto_times(shape, workers * steps * micro_batches, 99);
    const MicroBatchTimes tried{others, workers, steps, micro_batches};
    double best = 0;
    for (double threshold = 0.002; threshold < 10; threshold *= 1.05)
      best = std::max(best, throughput(tried, serial_s, threshold));
    for (const int recorded_steps : {44, 200})
      for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        const auto times =
            pareto_times(shape, static_cast<std::size_t>(workers * recorded_steps * micro_batches), seed);
        const auto found =
            search_threshold({times, workers, recorded_steps, micro_batches}, serial_s, SpeedupForm::throughput);
        EXPECT_GT(throughput(tried, serial_s, found.threshold), 0.96 * best)
            << "shape " << shape << ", " << recorded_steps << " steps, seed " << seed;
      }
  }
}

// One of four workers takes 10 instead of 1. A threshold that drops it must be just above 1.
TEST(ThresholdSearch, TheSecondGridComesCloserThanTheFirst) {
  const std::vector<double> times = {1, 1, 1, 10};
  const auto found = search_threshold({times, 4, 1, 1}, 0, SpeedupForm::throughput);
  EXPECT_GT(found.threshold, 1);
  EXPECT_LT(found.threshold, 1.0002);  // 10^(1/199) = 1.012 lies between 1 and 1.023; the second grid there has 1.0001
  EXPECT_NEAR(found.effective_speedup, 0.75 * 10, 0.002);
}

TEST(ThresholdSearch, WhatEndsAtTheThresholdIsDropped) {
  const std::vector<double> times = {1, 1};
  for (const SpeedupForm form : {SpeedupForm::throughput, SpeedupForm::effective, SpeedupForm::reference}) {
    const auto effect = threshold_effects({times, 1, 1, 2}, 0, form, std::vector<double>{1, 2})[0];
    EXPECT_EQ(effect.drop_rate, 1);
    EXPECT_EQ(effect.effective_speedup, 0);  // even if the rest of the step takes no time
  }
}

// One of four workers has no work, and one takes 10 instead of 1. T^c = 1, so a step takes 11 without a threshold. A
// threshold just above 1 keeps three of four micro-batches, and a step takes 2.
TEST(ThresholdSearch, WhatTakesNoTimeHindersNoSearch) {
  const std::vector<double> times = {0, 1, 1, 10};
  const MicroBatchTimes recorded{times, 4, 1, 1};
  EXPECT_EQ(threshold_grid(recorded).front(), 1);
  EXPECT_EQ(threshold_grid(recorded).back(), 10);
  const auto found = search_threshold(recorded, 1, SpeedupForm::throughput);
  EXPECT_GT(found.threshold, 1);
  EXPECT_LT(found.threshold, 1.0002);
  EXPECT_EQ(found.drop_rate, 0.25);
  EXPECT_NEAR(found.effective_speedup, 0.75 * 11 / 2, 0.001);
  EXPECT_DOUBLE_EQ(search_threshold(recorded, 1, SpeedupForm::reference).effective_speedup, 0.75 * 11 / 2);
}

// Two workers have one micro-batch in each of two steps, of 0 and 0 and then of 0 and 4. A threshold of 2 keeps
// three of four micro-batches and halves the second step; the first step still takes no time.
TEST(ThresholdSearch, AStepOfNoDurationIsNeitherFasterNorSlower) {
  const std::vector<double> times = {0, 0, 0, 4};
  const MicroBatchTimes recorded{times, 2, 2, 1};
  const std::vector<double> thresholds = {2};
  const auto all = threshold_effects(recorded, 0, SpeedupForm::throughput, thresholds)[0];
  EXPECT_EQ(all.drop_rate, 0.25);
  EXPECT_EQ(all.time_saved, 0.5);
  EXPECT_EQ(all.effective_speedup, 0.75 * 4 / 2);
  for (const SpeedupForm form : {SpeedupForm::effective, SpeedupForm::reference}) {
    const auto mean = threshold_effects(recorded, 0, form, thresholds)[0];
    EXPECT_EQ(mean.time_saved, (0 + 0.5) / 2);
    EXPECT_EQ(mean.effective_speedup, (1 + 0.5 * 4 / 2) / 2);
  }
  EXPECT_GT(search_threshold(recorded, 0, SpeedupForm::throughput).threshold, 0);
}

TEST(ThresholdSearch, WhereNothingTakesTimeNoThresholdIsSet) {
  const std::vector<double> times(8, 0.0);
  const MicroBatchTimes recorded{times, 2, 2, 2};
  for (const SpeedupForm form : {SpeedupForm::throughput, SpeedupForm::effective, SpeedupForm::reference}) {
    EXPECT_EQ(search_threshold(recorded, 0, form).threshold, std::numeric_limits<double>::infinity());
    for (const ThresholdEffect& effect : threshold_effects(recorded, 0, form, threshold_grid(recorded))) {
      EXPECT_EQ(effect.drop_rate, 0);
      EXPECT_EQ(effect.time_saved, 0);
      EXPECT_EQ(effect.effective_speedup, 1);
    }
  }
}

TEST(ThresholdSearch, WithoutAnySpreadNoThresholdIsSet) {
  const std::vector<double> times(static_cast<std::size_t>(8 * 3 * 12), 1.0);
  for (const SpeedupForm form : {SpeedupForm::throughput, SpeedupForm::effective, SpeedupForm::reference}) {
    const auto found = search_threshold({times, 8, 3, 12}, 1, form);
    EXPECT_EQ(found.threshold, std::numeric_limits<double>::infinity());
    EXPECT_EQ(found.drop_rate, 0);
    EXPECT_EQ(found.effective_speedup, 1);
  }
}

// One of four workers takes 10 instead of 1. Every threshold between 1 and 10 drops its micro-batch, a quarter of all,
// and by the reference code a step then takes 1. The first such threshold of the grid is 1 + 9/199.
TEST(ThresholdSearch, OfEqualThresholdsTheFirstIsTaken) {
  const std::vector<double> times = {1, 1, 1, 10};
  const auto found = search_threshold({times, 4, 1, 1}, 0, SpeedupForm::reference);
  EXPECT_DOUBLE_EQ(found.threshold, 1 + 9.0 / 199);
  EXPECT_DOUBLE_EQ(found.effective_speedup, 0.75 * 10);
}

TEST(ThresholdSearch, ACapAllowsWhatDropsJustAsMuch) {
  const std::vector<double> times = {1, 1, 1, 10};
  for (const SpeedupForm form : {SpeedupForm::throughput, SpeedupForm::effective, SpeedupForm::reference}) {
    EXPECT_EQ(search_threshold({times, 4, 1, 1}, 0, form, 0.25).drop_rate, 0.25);
    EXPECT_EQ(search_threshold({times, 4, 1, 1}, 0, form, 0.2499).threshold, std::numeric_limits<double>::infinity());
  }
}

TEST(ThresholdSearch, ACapThatNoThresholdMeetsSetsNone) {
  const Recorded times = search_case();
  // Even the highest threshold of the grid drops the very last micro-batch, 1 of 8448.
  EXPECT_EQ(search_threshold(times.view, 800, SpeedupForm::effective, 1e-5).threshold,
            std::numeric_limits<double>::infinity());
}

// Predictions for a threshold that a run searches itself, compared with runs on the simulated cluster.

constexpr int seeds = 6;

// A run of 64 workers with 12 micro-batches of 1 s plus the delay records 44 steps, after 6 unrecorded ones.
PredictedRun run_with(const std::shared_ptr<const DelayProcess>& delay, int seed) {
  return {
      .workers = 64, .micro_batches = 12, .delays = {delay}, .steps = 1500, .seed = static_cast<std::uint64_t>(seed)};
}

DropCompute automatic() { return DropCompute(DropComputeOptions{.threshold = make_automatic_threshold({})}); }

// The last prediction, which uses drawn steps instead of normal times if the two differ.
Prediction predicted(const PredictedRun& setting, const DropCompute& method) {
  const auto predictions = setting.predict(method);
  return predictions.empty() ? Prediction{} : predictions.back();
}

TEST(SearchedThresholds, DoInARunWhatIsPredictedWithinThreeErrors) {
  for (const double shape : {1.5, 1.8, 3.0})
    for (int seed = 1; seed <= seeds; ++seed) {
      SCOPED_TRACE(testing::Message() << "Pareto, shape " << shape << ", seed " << seed);
      const PredictedRun setting = run_with(pareto_delay(shape, 0.5), seed);
      const DropCompute method = automatic();
      const Prediction prediction = predicted(setting, method);
      ASSERT_EQ(prediction.formula, "Eq. 6, sampled law");
      const auto simulated = setting.simulate(method);
      EXPECT_NEAR(prediction.step_time_s, simulated.step_s, 3 * std::hypot(prediction.step_error_s, simulated.error_s));
      EXPECT_NEAR(*prediction.drop_rate, simulated.drop_rate, 3 * prediction.kept_error);
      EXPECT_LT(prediction.step_error_s, 0.5 * prediction.step_time_s) << "says something all the same";
    }
}

// On average over many runs, predictions promise no more gain over synchronous SGD (by the same E[T]) than runs reach.
// This matters most if a threshold is searched in few steps, because it then fits these better than later steps.
TEST(SearchedThresholds, AreNotPredictedTooWellOnAverage) {
  for (const int searched_steps : {44, 4}) {
    double predicted_gain = 0, simulated_gain = 0;
    for (int seed = 1; seed <= seeds; ++seed) {
      const PredictedRun setting = run_with(pareto_delay(1.5, 0.5), seed);
      const DropCompute method(
          DropComputeOptions{.threshold = make_automatic_threshold({.calibration_steps = searched_steps})});
      const Prediction prediction = predicted(setting, method);
      const auto simulated = setting.simulate(method);
      predicted_gain += prediction.kept / prediction.step_time_s / seeds;
      simulated_gain += (1 - simulated.drop_rate) / simulated.step_s / seeds;
    }
    EXPECT_NEAR(predicted_gain / simulated_gain, 1, 0.05) << searched_steps << " steps";
  }
}

// A given threshold is not searched, so the whole sample predicts its effect.
TEST(SearchedThresholds, AFixedOneIsJudgedByAllDrawnSteps) {
  const PredictedRun setting = run_with(pareto_delay(1.5, 0.5), 1);
  const Prediction prediction = predicted(setting, DropCompute(from_seconds(20), Preempt::discard, 1.0 / 3));
  setting.with_input([&](const PredictionInput& input) {
    const auto cut = sample_cut_steps(input.times, 20);
    EXPECT_DOUBLE_EQ(prediction.step_time_s, cut->time_s.mean + 0.5);
    EXPECT_DOUBLE_EQ(prediction.kept, cut->kept.mean);
    EXPECT_DOUBLE_EQ(prediction.step_error_s, cut->time_s.error);
    return 0;
  });
}

}  // namespace
}  // namespace syncopate
