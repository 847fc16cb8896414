#include "workers/time/compute_time.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/instruction_sets.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
using Delays = std::vector<std::shared_ptr<const DelayProcess>>;

std::vector<Duration> durations(const ComputeTime& time, Rank worker, Step step, std::size_t n,
                                std::uint32_t first = 0) {
  std::vector<Duration> out(n);
  time.durations(worker, step, first, out);
  return out;
}

// Delays that a test lists, by micro-batch.
class ListedDelay final : public DelayProcess {
 public:
  explicit ListedDelay(std::vector<double> seconds) : seconds_(std::move(seconds)) {}
  void add(const RandomStream&, std::uint32_t first, std::span<double> added_s) const override {
    for (std::size_t i = 0; i < added_s.size(); ++i) added_s[i] += seconds_.at(first + i);
  }
  double mean_s() const override { return 0; }

 private:
  std::vector<double> seconds_;
};

// A different time for each worker, step and micro-batch.
class DelayOfPlace final : public DelayProcess {
 public:
  void add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const override {
    for (std::size_t i = 0; i < added_s.size(); ++i)
      added_s[i] += 1e-3 + 1e-4 * stream.worker.value + 1e-5 * static_cast<double>(stream.step.value()) +
                    1e-6 * static_cast<double>(first + i);
  }
  double mean_s() const override { return 0; }
};

// Delays of 0 s from a recording that may end.
class FewDelays final : public DelayProcess {
 public:
  explicit FewDelays(double mean_s = 0) : mean_s_(mean_s) {}
  void add(const RandomStream&, std::uint32_t, std::span<double>) const override {}
  double mean_s() const override { return mean_s_; }
  bool can_run_out() const override { return true; }

 private:
  double mean_s_;
};

TEST(ComputeTime, WithoutDelaysIsBaseTimesTheWorkersFactor) {
  const ComputeTime time(1, 0.010, {1.0, 2.5}, {});
  EXPECT_THAT(durations(time, Rank{0}, Step{0}, 3), testing::Each(Duration{10'000'000}));
  EXPECT_THAT(durations(time, Rank{1}, Step{9}, 3), testing::Each(Duration{25'000'000}));
  EXPECT_EQ(time.base(Rank{1}), Duration{25'000'000});
  EXPECT_EQ(time.added(Rank{1}, Step{0}, 0), Duration{0});
}

TEST(ComputeTime, FactorsScaleTheBaseAndNotTheAddedDelay) {
  const ComputeTime time(1, 0.010, {3.0}, {constant_delay(0.004)});
  EXPECT_THAT(durations(time, Rank{0}, Step{0}, 2), testing::Each(Duration{34'000'000}));
  EXPECT_EQ(time.added(Rank{0}, Step{0}, 0), Duration{4'000'000});
}

TEST(ComputeTime, RoundsToTheNearestNanosecond) {
  with_each_instruction_set([](const std::string&) {
    const auto listed = std::make_shared<ListedDelay>(
        std::vector<double>{0.4e-9, 0.6e-9, 1.49e-9, 2.51e-9, 123456789.4e-9, 86400 + 0.6e-9, 1e6});
    const ComputeTime time(1, 1e-9, {}, {listed});
    EXPECT_THAT(durations(time, Rank{0}, Step{0}, 7),
                testing::ElementsAre(Duration{1}, Duration{2}, Duration{2}, Duration{4}, Duration{123456790},
                                     Duration{86'400'000'000'002}, Duration{1'000'000'000'000'001}));
  });
}

TEST(ComputeTime, LastsAtLeastANanosecondAndAtMostTheLongestDuration) {
  with_each_instruction_set([](const std::string&) {
    const auto listed =
        std::make_shared<ListedDelay>(std::vector<double>{-1, -0.001, -infinity, infinity, 1e300, 0.001});
    const ComputeTime time(1, 0.001, {}, {listed});
    EXPECT_THAT(durations(time, Rank{0}, Step{0}, 6),
                testing::ElementsAre(Duration{1}, Duration{1}, Duration{1}, longest_duration, longest_duration,
                                     Duration{2'000'000}));
    EXPECT_EQ(time.added(Rank{0}, Step{0}, 0), Duration{0});  // a sleep cannot be negative
    EXPECT_EQ(time.added(Rank{0}, Step{0}, 3), longest_duration);
  });
}

TEST(ComputeTime, SumsOfDurationsGoOnBeyondTheLongest) {
  const Duration short_one{5}, longest = longest_duration;
  EXPECT_EQ(sum_of({}), Duration{0});
  EXPECT_EQ(sum_of(std::vector{short_one, Duration{7}, Duration{11}}), Duration{23});
  for (std::size_t place = 0; place < 5; ++place) {
    std::vector<Duration> durations(5, short_one);
    durations[place] = longest;
    EXPECT_GE(sum_of(durations), longest) << place;
  }
  for (const std::size_t count : {2, 3, 10, 1001}) EXPECT_GE(sum_of(std::vector(count, longest)), longest) << count;
}

TEST(ComputeTime, DelayThatIsNotANumberIsAnErrorAndNoTime) {
  const auto listed = std::make_shared<ListedDelay>(std::vector<double>{0, std::nan(""), 0, 0, 0, 0, 0, 0});
  const ComputeTime time(1, 0.001, {}, {listed});
  with_each_instruction_set(
      [&](const std::string&) { EXPECT_THROW(durations(time, Rank{0}, Step{0}, 8), std::invalid_argument); });
}

TEST(ComputeTime, NormalDelaysNeverMakeAMicroBatchFree) {
  const ComputeTime time(7, 0.001, {}, {normal_delay(0, 0.01)});
  const auto all = durations(time, Rank{0}, Step{0}, 10'000);
  EXPECT_THAT(all, testing::Each(testing::Ge(Duration{1})));
  // The share of durations that are raised to 1 ns is Phi(-0.1) = 0.46017, within five standard errors.
  const auto raised = static_cast<double>(std::ranges::count(all, Duration{1}));
  EXPECT_NEAR(raised / 10'000, 0.46017, 5 * std::sqrt(0.46017 * 0.53983 / 10'000));
}

TEST(ComputeTime, DelaysComposeByAdditionAndEachDrawsFromItsPlaceInTheList) {
  const auto first = tabulated_lognormal_delay(0.005), second = exponential_delay(0.002);
  const ComputeTime time(42, 0.010, {}, {first, second, second});
  const auto all = durations(time, Rank{5}, Step{17}, 100);
  std::vector<std::vector<double>> parts(3, std::vector<double>(100, 0.0));
  const Delays delays = {first, second, second};
  for (std::uint8_t i = 0; i < 3; ++i) delays[i]->add({42, Purpose::delay, i, Rank{5}, Step{17}}, 0, parts[i]);
  EXPECT_NE(parts[1], parts[2]);
  for (int m = 0; m < 100; ++m) {
    const double sum_s = 0.010 + parts[0][m] + parts[1][m] + parts[2][m];
    EXPECT_NEAR(static_cast<double>(all[m].count()), sum_s * 1e9, 0.501);
  }
}

TEST(ComputeTime, OrderOfAskingDoesNotMatter) {
  const ComputeTime time(3, 0.010, {}, {tabulated_lognormal_delay(0.005), normal_delay(0, 0.001)});
  const auto batch = durations(time, Rank{2}, Step{4}, 200);
  for (std::uint32_t m = 200; m-- > 0;) {
    (void)durations(time, Rank{1}, Step{m}, 3);  // durations of another worker in between
    ASSERT_EQ(durations(time, Rank{2}, Step{4}, 1, m)[0], batch[m]);
  }
  std::vector<Duration> elsewhere;
  std::thread([&] { elsewhere = durations(time, Rank{2}, Step{4}, 200); }).join();
  EXPECT_EQ(elsewhere, batch);
}

// Durations of many steps drawn at once, for several workers or for one, are those of steps drawn one by one.
TEST(ComputeTime, ManyStepsAtOnceAreThoseAskedForOneByOne) {
  std::vector<double> factors;
  for (int worker = 0; worker < 1400; ++worker) factors.push_back(1 + 0.125 * (worker % 7));
  const Delays delays = {exponential_delay(0.005), std::make_shared<DelayOfPlace>()};
  const ComputeTime unlike(3, 0.010, factors, delays), alike(3, 0.010, {}, delays);
  const ComputeTime recorded(3, std::make_shared<DelayOfPlace>(), factors, delays);
  for (const ComputeTime* time : {&unlike, &alike, &recorded})
    for (const auto along : {RandomRows::Along::workers, RandomRows::Along::steps})
      for (const auto& [count, length] :
           {std::pair{1, 5}, {7, 3}, {300, 1}, {1300, 1}, {400, 3}, {3, 600}, {2, 1200}}) {
        const Rank worker{2};
        const Step step{11};
        std::vector<Duration> found(static_cast<std::size_t>(count * length)), expected;
        time->durations({.worker = worker, .step = step, .along = along, .count = static_cast<std::size_t>(count)}, 4,
                        found);
        for (int row = 0; row < count; ++row) {
          const bool of_workers = along == RandomRows::Along::workers;
          const auto own = durations(*time, of_workers ? Rank{worker.value + row} : worker,
                                     of_workers ? step : step + row, static_cast<std::size_t>(length), 4);
          expected.insert(expected.end(), own.begin(), own.end());
        }
        ASSERT_EQ(found, expected) << count << " steps of " << length;
      }
}

TEST(ComputeTime, WorkersStepsAndSeedsDiffer) {
  const Delays delays = {exponential_delay(0.005)};
  const ComputeTime time(3, 0.010, {}, delays), other(4, 0.010, {}, delays);
  const auto here = durations(time, Rank{2}, Step{4}, 12);
  EXPECT_NE(durations(time, Rank{3}, Step{4}, 12), here);
  EXPECT_NE(durations(time, Rank{2}, Step{5}, 12), here);
  EXPECT_NE(durations(other, Rank{2}, Step{4}, 12), here);
}

TEST(ComputeTime, BaseAndAddedMakeTheDuration) {
  const ComputeTime time(3, 0.010, {1.5}, {exponential_delay(0.005)});
  const auto all = durations(time, Rank{0}, Step{4}, 50);
  for (std::uint32_t m = 0; m < 50; ++m) {
    const Duration parts = time.base(Rank{0}) + time.added(Rank{0}, Step{4}, m);
    EXPECT_LE(std::abs((parts - all[m]).count()), 1) << "more than rounding";
  }
}

TEST(ComputeTime, CanRunOutIfAnyOfItsPartsCan) {
  const auto few = std::make_shared<FewDelays>();
  const auto plain = constant_delay(1);
  for (const Delays& delays : {Delays{few, plain}, {plain, few}, {few}})
    EXPECT_TRUE(ComputeTime(1, 1.0, {}, delays).can_run_out());
  EXPECT_TRUE(ComputeTime(1, few, {}, {plain}).can_run_out());
  EXPECT_FALSE(ComputeTime(1, 1.0, {}, {plain}).can_run_out());
  EXPECT_FALSE(ComputeTime(1, plain, {}, {plain}).can_run_out());
}

TEST(ComputeTime, HasAMeanWhereEachOfItsDelaysHasOne) {
  const auto endless = std::make_shared<FewDelays>(infinity);
  EXPECT_TRUE(ComputeTime(1, 1.0, {}, {}).has_finite_mean());
  EXPECT_TRUE(ComputeTime(1, 1.0, {}, {constant_delay(1), exponential_delay(2)}).has_finite_mean());
  EXPECT_FALSE(ComputeTime(1, 1.0, {}, {endless}).has_finite_mean());
  EXPECT_FALSE(ComputeTime(1, 1.0, {}, {endless, constant_delay(1)}).has_finite_mean());
  EXPECT_FALSE(ComputeTime(1, 1.0, {}, {constant_delay(1), endless}).has_finite_mean());
}

TEST(ComputeTime, HasAFactorForEachWorkerOrForNone) {
  EXPECT_THROW(ComputeTime(1, 1.0, {1.0}, {}).base(Rank{1}), std::out_of_range);
}

using Lengths = std::vector<std::int32_t>;

// Two workers, two micro-batches of two sequences, and three steps until the data repeat.
class WrittenLengths final : public BatchLengths {
 public:
  static Lengths of(const MicroBatch& m) {
    static const Lengths all[2][3][2] = {{{{3, 5}, {1, 2}}, {{8, 8}, {4, 1}}, {{2, 2}, {2, 2}}},
                                         {{{9, 1}, {5, 5}}, {{7, 3}, {6, 6}}, {{1, 1}, {3, 4}}}};
    return all[m.worker.value][m.step.value() % 3][m.index];
  }
  void append(const MicroBatch& m, Lengths& lengths) const override {
    const Lengths own = of(m);
    lengths.insert(lengths.end(), own.begin(), own.end());
  }
  int workers() const override { return 2; }
  int micro_batches() const override { return 2; }
  std::int64_t steps_per_epoch() const override { return 3; }
  bool differs_by_worker() const override { return false; }
  std::int64_t fewest_samples() const override { return 2; }
  std::int32_t shortest() const override { return 1; }
};

TEST(ContentTime, OneSequencesTimeIsWhatItsLengthCosts) {
  const ContentCost cost{.base_s = 1, .per_token_s = 0.1, .per_squared_length_s = 0.01};
  EXPECT_DOUBLE_EQ(seconds_of(cost, Lengths{7}), 1 + 0.7 + 0.49);
  ContentCost padded = cost;
  padded.pads = true;
  padded.per_padded_token_s = 0.001;
  EXPECT_DOUBLE_EQ(seconds_of(padded, Lengths{7}), 1 + 0.7 + 0.49 + 0.007);
}

TEST(ContentTime, OfSeveralSequencesByHand) {
  const Lengths lengths = {3, 5, 4};
  EXPECT_DOUBLE_EQ(seconds_of({.base_s = 2}, lengths), 2);
  EXPECT_DOUBLE_EQ(seconds_of({.per_token_s = 1}, lengths), 12);
  EXPECT_DOUBLE_EQ(seconds_of({.per_padded_token_s = 1}, lengths), 15);
  EXPECT_DOUBLE_EQ(seconds_of({.per_squared_length_s = 1}, lengths), 9 + 25 + 16);
  EXPECT_DOUBLE_EQ(seconds_of({.per_squared_length_s = 1, .pads = true}, lengths), 75);
}

TEST(ContentTime, FollowsFactorsAndAddedDelays) {
  const auto base = content_time({.base_s = 0.5, .per_token_s = 0.1}, std::make_shared<WrittenLengths>());
  const ComputeTime time(1, base, {1, 3}, {constant_delay(0.25)});
  std::vector<Duration> out(2);
  time.durations(Rank{0}, Step{0}, 0, out);
  EXPECT_EQ(out, (std::vector{from_seconds(0.5 + 0.8 + 0.25), from_seconds(0.5 + 0.3 + 0.25)}));
  time.durations(Rank{1}, Step{4}, 0, out);
  EXPECT_EQ(out, (std::vector{from_seconds(3 * 1.5 + 0.25), from_seconds(3 * 1.7 + 0.25)}));
}

// If a slot computes samples of another worker or step, the samples determine the base time, and the slot the delay.
TEST(ContentTime, FollowsTheSamplesAndDelaysTheSlot) {
  const auto base = content_time({.per_token_s = 0.1}, std::make_shared<WrittenLengths>());
  const ComputeTime time(1, base, {1, 3}, {constant_delay(0.25)});
  EXPECT_TRUE(time.follows_samples());
  const MicroBatch slot{Rank{1}, Step{0}, 0}, samples{Rank{0}, Step{1}, 1};
  EXPECT_EQ(time.duration(slot, samples), from_seconds(3 * 0.5 + 0.25));
  EXPECT_EQ(time.duration(slot, slot), from_seconds(3 * 1.0 + 0.25));
  EXPECT_FALSE(ComputeTime(1, 0.1, {}, {}).follows_samples());
}

TEST(ContentTime, LawsAreThoseOfTheEpochItself) {
  const auto process = content_time({.per_token_s = 1}, std::make_shared<WrittenLengths>());
  const std::vector<double> ones = {8, 3, 16, 5, 4, 4, 10, 10, 10, 12, 2, 7}, steps = {11, 21, 8, 20, 22, 9};
  const auto law = [](const std::vector<double>& values) {
    double mean = 0, variance = 0;
    for (const double value : values) mean += value / static_cast<double>(values.size());
    for (const double value : values) variance += std::pow(value - mean, 2) / static_cast<double>(values.size());
    return StepLaw{mean, variance};
  };
  EXPECT_NEAR(process->mean_s(), law(ones).mean_s, 1e-12);
  EXPECT_NEAR(process->variance_s2(), law(ones).variance_s2, 1e-12);
  EXPECT_NEAR(process->step_law({}, 2).mean_s, law(steps).mean_s, 1e-12);
  EXPECT_NEAR(process->step_law({}, 2).variance_s2, law(steps).variance_s2, 1e-12);
  EXPECT_NEAR(process->step_law({}, 5).mean_s, 5 * law(ones).mean_s, 1e-12);
  EXPECT_DOUBLE_EQ(process->minimum_s(), 2);
}

// Sleeps and trailing work between micro-batches: whole timelines of two workers, by hand.

using testing::ElementsAre;

// Three micro-batches of 1 s. After each, worker 0 sleeps 0.4 s and worker 1 sleeps 2 s. An all-reduce takes 0.5 s.
SimulatedRun sleepers(double trailing_s, int steps = 2) {
  return {.workers = 2,
          .micro_batches = 3,
          .budget = {.steps = steps},
          .pauses = std::make_shared<Pauses>(1, trailing_s,
                                             std::vector<std::shared_ptr<const DelayProcess>>{
                                                 std::make_shared<DelayOfWorker>(std::vector<double>{0.4, 2})}),
          .objective = nullptr};
}

std::vector<std::string> log_of(const SimulatedRun& setup, const Algorithm& algorithm) {
  const auto outcome = setup.run(algorithm);
  expect_exact_accounts(outcome);
  return outcome.log;
}

TEST(Pauses, TheLastSleepOfAStepFollowsItsAllReduce) {
  // Worker 1's three micro-batches and two sleeps take 7 s. The all-reduce and the third sleep follow, then step 2.
  EXPECT_THAT(log_of(sleepers(0), SyncSgd()),
              ElementsAre("step 1 at 7.500 s: kept 6, dropped 0", "step 2 at 17.000 s: kept 6, dropped 0"));
}

TEST(Pauses, ASleepHidesTrailingWorkThatIsShorter) {
  // Sleeps hide trailing work of 0.25 s, except before the all-reduce. Without sleeps, trailing work of 0.7 s follows
  // every micro-batch.
  EXPECT_THAT(log_of(sleepers(0.25), SyncSgd()),
              ElementsAre("step 1 at 7.750 s: kept 6, dropped 0", "step 2 at 17.500 s: kept 6, dropped 0"));
  SimulatedRun awake = sleepers(0.7);
  awake.pauses = std::make_shared<Pauses>(1, 0.7, std::vector<std::shared_ptr<const DelayProcess>>{});
  EXPECT_THAT(log_of(awake, SyncSgd()),
              ElementsAre("step 1 at 5.600 s: kept 6, dropped 0", "step 2 at 11.200 s: kept 6, dropped 0"));
}

TEST(Pauses, ADeadlineCutsASleepButNotTrailingWork) {
  // At 2.5 s worker 1 is in its first sleep. Worker 0's second micro-batch ends at 2.4 s, its trailing work later.
  const auto drop = [](Preempt preempt) { return DropCompute(from_seconds(2.5), preempt, 0.5); };
  for (const Preempt preempt : {Preempt::discard, Preempt::microbatch, Preempt::backward, Preempt::layer}) {
    EXPECT_THAT(log_of(sleepers(0), drop(preempt)),
                ElementsAre("step 1 at 3.000 s: kept 3, dropped 3", "step 2 at 6.000 s: kept 3, dropped 3"));
    EXPECT_THAT(log_of(sleepers(0.25), drop(preempt)),
                ElementsAre("step 1 at 3.150 s: kept 3, dropped 3", "step 2 at 6.300 s: kept 3, dropped 3"));
  }
  // Worker 0's second micro-batch runs from 1.4 to 2.4 s. At a threshold of 2.2 s it is lost or finishes, depending on
  // preemption. With `backward` it finishes, because its forward pass ended at 1.9 s. At 1.8 s `backward` loses it.
  const auto first = [&](Preempt preempt, double threshold_s) {
    return log_of(sleepers(0, 1), DropCompute(from_seconds(threshold_s), preempt, 0.5)).front();
  };
  EXPECT_EQ(first(Preempt::discard, 2.2), "step 1 at 2.700 s: kept 2, dropped 4");
  EXPECT_EQ(first(Preempt::layer, 2.2), "step 1 at 2.700 s: kept 2, dropped 4");
  EXPECT_EQ(first(Preempt::microbatch, 2.2), "step 1 at 2.900 s: kept 3, dropped 3");
  EXPECT_EQ(first(Preempt::backward, 2.2), "step 1 at 2.900 s: kept 3, dropped 3");
  EXPECT_EQ(first(Preempt::backward, 1.8), "step 1 at 2.400 s: kept 2, dropped 4");
}

TEST(Pauses, LocalStepsHaveThemToo) {
  // Worker 1's two local steps have six micro-batches and five sleeps. The sixth sleep follows the average.
  const LocalSgd algorithm(make_constant_period(2), {});
  EXPECT_THAT(log_of(sleepers(0, 4), algorithm),
              ElementsAre("step 2 at 16.500 s: kept 12, dropped 0", "step 4 at 35.000 s: kept 12, dropped 0"));
}

TEST(Pauses, SleepsAddUpAndDrawFromStreamsOfTheirOwn) {
  const auto uniform = uniform_delay(0, 1);
  const auto at = [](const Pauses& pauses, std::uint32_t index) { return pauses.sleep(Rank{3}, Step{5}, index); };
  const Pauses one(7, 0, {uniform}), later_stream(7, 0, {uniform}, 1), both(7, 0, {uniform, uniform});
  EXPECT_NEAR(to_seconds(at(both, 2)), to_seconds(at(one, 2) + at(later_stream, 2)), 2e-9);
  EXPECT_NE(at(one, 2), at(later_stream, 2));
  EXPECT_NE(at(one, 2), at(one, 3));
  EXPECT_EQ(at(Pauses(7, 0, {constant_delay(-1)}), 0), Duration{});  // a sleep cannot be negative
  EXPECT_THROW(Pauses(1, -0.1, {}), std::invalid_argument);
}

}  // namespace
}  // namespace syncopate
