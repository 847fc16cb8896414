// The rules for DropCompute's threshold, in runs.
#include "algorithms/synchronous/drop_threshold.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using Statistic = AdaptiveThresholdOptions::Statistic;

DropCompute with(std::shared_ptr<const DropThreshold> threshold) {
  return DropCompute({.threshold = std::move(threshold)});
}

// The delay environment of the paper's experiments: 64 workers, 12 micro-batches of 1 s, T^c = 0.5 s.
SimulatedRun delay_environment(int steps) {
  return {.workers = 64,
          .micro_batches = 12,
          .budget = {.steps = steps},
          .delays = {tabulated_lognormal_delay(0.5)},
          .objective = nullptr};
}

// What the workers of a run meet in these steps, drawn apart from any run.
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

// Variance over workers and steps of the share of micro-batches that a worker loses in a step.
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
  // Somebody is always late: every step lasts exactly until the threshold. The first one holds the gather, too.
  const Duration step = from_seconds(expected.threshold) + from_seconds(0.5);
  EXPECT_NEAR(to_seconds(outcome.rounds[50].duration), to_seconds(step) + 0.5, 2e-9);
  for (std::size_t i = 51; i < outcome.rounds.size(); ++i)
    EXPECT_NEAR(to_seconds(outcome.rounds[i].duration), to_seconds(step), 2e-9);
  // Four standard errors of the difference: 64 x 44 worker-steps were recorded, 64 x 200 realised.
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
  const auto mean_s = [](const SimulatedRun::Outcome& run) {  // of the last 199 steps
    return to_seconds(run.rounds.back().end - run.rounds[50].end) / 199;
  };
  const double realised = (1 - dropped_share(outcome, 51)) * mean_s(baseline) / mean_s(outcome);
  // The slowest of 64 workers varies by about 1.5 s in 24 s from step to step; over 44 steps its mean is off by 1 %.
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

// Sleeps tell the clocks apart: a timer around micro-batches sees the one that follows a step's last, and the step's
// clock does not.
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
    double last_sleep = 0;  // ends the recorded steps, each worker's its own
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
  // The first two steps are ten times as long; recorded, they would be all that a threshold could cut.
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
  // 3 workers share 4 x 3 times and one mean, of 8 bytes each, with the 2 others.
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

TEST(DerivedOnce, ComputesOnceForTheSameNumbersAndAnewForEqualOnes) {
  int computed = 0;
  DerivedOnce once;
  const auto ask = [&](const SharedNumbers& numbers) { return *once.get<int>(numbers, [&] { return ++computed; }); };
  SharedNumbers numbers = std::make_shared<const std::vector<double>>(2, 1.0);
  EXPECT_EQ(ask(numbers), 1);
  EXPECT_EQ(ask(numbers), 1);
  for (int gather = 2; gather < 10; ++gather) {
    numbers = nullptr;  // its memory may be used again
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
  // Median 3; deviations 2, 1, 0, 1, 97 with median 1: one outlier changes neither.
  EXPECT_DOUBLE_EQ(adaptive_threshold(exact({1, 2, 3, 4, 100}), options), 7);
  // 4 and 100 only known to be longer than 3.5. The median is still 3; deviations are 0, 0.5 or more twice, 1, 2.
  std::vector<StepTime> times = exact({1, 2, 3});
  times.insert(times.end(), 2, {.seconds = 3.5, .at_least = true});
  // The share that deviates by more than 0 is 4/5, by more than 1 it is 4/5 x 1/2: half do not exceed 1.
  EXPECT_DOUBLE_EQ(adaptive_threshold(times, options), 7);
}

// 1 and 2 are only known to be exceeded, which may be by little or by much: they tell nothing of how far they lie from
// the median of 7. Of the others 1, 3/4, 1/2, 1/4 and none exceed 4, 6, 7, 9.5 and 20. More than 0 is the deviation of
// 6/7 of all, and of these 3/4 deviate by more than 1, 1/2 by more than 2.5: less than half of all.
TEST(AdaptiveThreshold, WhatWasCutOffBeforeTheMedianMayHaveEndedAnywhereFromThere) {
  std::vector<StepTime> times = exact({4, 6, 7, 9.5, 20});
  for (const double time : {1, 2}) times.push_back({.seconds = time, .at_least = true});
  EXPECT_DOUBLE_EQ(adaptive_threshold(times, {.quantile = 0.5}), 7);
  const AdaptiveThresholdOptions options{.statistic = Statistic::median_and_deviations, .deviations = 2};
  EXPECT_DOUBLE_EQ(adaptive_threshold(times, options), 7 + 2 * 2.5);
}

// Times of remission in weeks, 6-mercaptopurine: the textbook example of the estimate (Freireich et al. 1963).
// Longer than 6, 7, 10, 13, 16, 22, 23 weeks: 0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448.
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
  // Beyond that nothing is known; the longest time is 35, and 0.448 - 0.4 are in excess.
  EXPECT_NEAR(at_share_exceeding(0.4), 35 * (1 + 0.0482), 0.002);
}

TEST(AdaptiveThreshold, AWorkerThatWasCutOffWouldHaveTakenLonger) {
  const auto at = [](double s) { return later(start_time, from_seconds(s)); };
  TimedStep step{.start = at(1), .ends = {at(2), at(3), at(4)}, .arrival = at(5), .offered = 3};
  EXPECT_EQ(time_of(step).seconds, 3);
  EXPECT_FALSE(time_of(step).at_least);
  step.offered = 2;  // one more was carried over
  EXPECT_EQ(time_of(step).seconds, 2);
  step.offered = 4;
  EXPECT_EQ(time_of(step).seconds, 4);
  EXPECT_TRUE(time_of(step).at_least);
}

TEST(AdaptiveThreshold, InTheLongRunTheQuantileIsTheShareOfWorkersInTime) {
  // One micro-batch per step, so that each late worker is one dropped micro-batch.
  const SimulatedRun setup{
      .workers = 64, .budget = {.steps = 1040}, .delays = {exponential_delay(0.5)}, .objective = nullptr};
  const auto outcome = setup.run(with(make_adaptive_threshold({.quantile = 0.9})));
  EXPECT_EQ(outcome.rounds[39].dropped, 0);  // no threshold before the window is full
  // 64,000 worker-steps under the threshold, and as many that set it: the standard error is 0.3 sqrt(2 / 64000) =
  // 0.0017. Four of these.
  EXPECT_NEAR(dropped_share(outcome, 40), 0.1, 4 * 0.0017);
}

TEST(AdaptiveThreshold, FollowsASlowDownThatMakesEverybodyLate) {
  class SlowFrom : public DelayProcess {
   public:
    void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
      for (double& added : added_s) added += stream.step < Step{100} ? 0 : 4;  // five times as slow, and more
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

// The first step's micro-batches take 1 s, the next one's 2 s, and so on: whatever the threshold, it is exceeded. There
// is none before an update has filled the window, of whole updates.
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
    EXPECT_EQ(make_adaptive_threshold(options)->traits().begins_after, Step{first});
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

}  // namespace
}  // namespace syncopate
