#include "workers/delays/compute_time.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "tests/workers/instruction_sets.hpp"
#include "workers/delays/bounded_lognormal.hpp"
#include "workers/delays/constant.hpp"
#include "workers/delays/exponential.hpp"
#include "workers/delays/normal.hpp"

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

// Delays that a test writes down, by micro-batch.
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
    EXPECT_EQ(time.added(Rank{0}, Step{0}, 0), Duration{0});  // nobody can sleep a negative time
    EXPECT_EQ(time.added(Rank{0}, Step{0}, 3), longest_duration);
  });
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
  // P(duration raised to 1 ns) = Phi(-0.1) = 0.46017, +- five standard errors.
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
    (void)durations(time, Rank{1}, Step{m}, 3);  // somebody else asks in between
    ASSERT_EQ(durations(time, Rank{2}, Step{4}, 1, m)[0], batch[m]);
  }
  std::vector<Duration> elsewhere;
  std::thread([&] { elsewhere = durations(time, Rank{2}, Step{4}, 200); }).join();
  EXPECT_EQ(elsewhere, batch);
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

TEST(ComputeTime, RefusesWhatIsNoTime) {
  for (const double base_s : {0.0, -1.0, infinity, std::nan("")}) {
    EXPECT_THROW(ComputeTime(1, base_s, {}, {}), std::invalid_argument);
    EXPECT_THROW(ComputeTime(1, 1.0, {1.0, base_s}, {}), std::invalid_argument);
  }
  EXPECT_THROW(ComputeTime(1, 1.0, {}, {nullptr}), std::invalid_argument);
  EXPECT_THROW(ComputeTime(1, 1.0, {}, Delays(256, constant_delay(0))), std::invalid_argument);
  EXPECT_THROW(ComputeTime(1, 1.0, {1.0}, {}).base(Rank{1}), std::out_of_range);
}

}  // namespace
}  // namespace syncopate
