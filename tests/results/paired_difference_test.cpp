// Expected numbers were computed with SciPy (ttest_1samp, t.interval, permutation_test), which shares no code with
// this.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "results/statistics.hpp"

namespace syncopate {
namespace {

constexpr std::array one_to_five = {1.0, 2.0, 3.0, 4.0, 5.0};
constexpr std::array mixed = {0.3, -0.2, 0.5, 0.4, 0.1, 0.6};
constexpr std::array about_zero = {0.1, -0.1, 0.2, -0.15, 0.05, 0.02};

TEST(PairedDifference, HasStudentsInterval) {
  const PairedDifference found = paired_difference(one_to_five);
  EXPECT_EQ(found.n, 5u);
  EXPECT_DOUBLE_EQ(found.mean, 3);
  ASSERT_TRUE(found.interval && found.t_p);
  EXPECT_NEAR(found.interval->low, 1.036756838522439, 1e-12);
  EXPECT_NEAR(found.interval->high, 4.9632431614775605, 1e-12);
  EXPECT_NEAR(*found.t_p, 0.013235599563682695, 1e-12);
  EXPECT_NEAR(*paired_difference(mixed).t_p, 0.06385795279249085, 1e-12);
  EXPECT_NEAR(*paired_difference(about_zero).t_p, 0.7193881931185475, 1e-12);
}

TEST(PairedDifference, CountsAllChoicesOfSigns) {
  EXPECT_DOUBLE_EQ(*paired_difference(one_to_five).sign_flip_p, 0.0625);  // 2 of 32
  EXPECT_DOUBLE_EQ(*paired_difference(mixed).sign_flip_p, 0.09375);
  EXPECT_DOUBLE_EQ(*paired_difference(about_zero).sign_flip_p, 0.75);
  EXPECT_DOUBLE_EQ(*paired_difference(std::array{0.0, 0.0}).sign_flip_p, 1);
  EXPECT_DOUBLE_EQ(*paired_difference(std::vector<double>(20, 0.1)).sign_flip_p, 2.0 / (1 << 20));
  EXPECT_FALSE(paired_difference(std::vector<double>(21, 0.1)).sign_flip_p);
}

// With five seeds no choice of signs is rarer than 1 in 16: then the interval alone decides.
TEST(PairedDifference, IsSignificantWhereTheIntervalExcludesZeroAndSignFlipsAgree) {
  EXPECT_TRUE(paired_difference(one_to_five).is_significant());
  EXPECT_FALSE(paired_difference(mixed).is_significant());
  EXPECT_TRUE(paired_difference(std::array{1.0, 1.1, 0.9, 1.2, 1.0, 0.8}).is_significant());
  // Six whose interval excludes 0 (p of 0.013), while 4 of the 64 choices of signs are as far.
  const std::array close = {1.3, 1.8, 1.3, -0.3, 1.9, 1.4};
  ASSERT_NEAR(*paired_difference(close).t_p, 0.01257517085284277, 1e-12);
  ASSERT_DOUBLE_EQ(*paired_difference(close).sign_flip_p, 0.0625);
  EXPECT_FALSE(paired_difference(close).is_significant());
}

TEST(PairedDifference, SaysNothingOfASingleSeed) {
  const PairedDifference found = paired_difference(std::array{0.5});
  EXPECT_DOUBLE_EQ(found.mean, 0.5);
  EXPECT_FALSE(found.interval || found.t_p || found.sign_flip_p || found.is_significant());
  EXPECT_FALSE(equivalence_p(std::array{0.5}, 1));
  EXPECT_TRUE(std::isnan(paired_difference({}).mean));
}

// Virtual times without delays are equal in all seeds: the difference is known exactly.
TEST(PairedDifference, IsCertainWhereNothingVaries) {
  const PairedDifference found = paired_difference(std::array{0.5, 0.5, 0.5});
  EXPECT_DOUBLE_EQ(found.interval->low, 0.5);
  EXPECT_DOUBLE_EQ(found.interval->high, 0.5);
  EXPECT_TRUE(found.is_significant());
  EXPECT_FALSE(paired_difference(std::array{0.0, 0.0, 0.0}).is_significant());
  EXPECT_DOUBLE_EQ(*equivalence_p(std::array{0.5, 0.5}, 0.6), 0);
  EXPECT_DOUBLE_EQ(*equivalence_p(std::array{0.5, 0.5}, 0.4), 1);
}

TEST(Equivalence, IsTheLargerOfTwoOneSidedTests) {
  EXPECT_NEAR(*equivalence_p(one_to_five, 0.5), 0.9879449447243046, 1e-12);
  EXPECT_NEAR(*equivalence_p(mixed, 0.5), 0.06476329748602627, 1e-12);
  EXPECT_NEAR(*equivalence_p(mixed, 0.3), 0.44725673332117477, 1e-12);
  EXPECT_NEAR(*equivalence_p(about_zero, 0.3), 0.0015658724783267342, 1e-12);
  EXPECT_NEAR(*equivalence_p(about_zero, 0.5), 0.00013232653676643639, 1e-14);
}

// That is what makes it a test at 5 %: the margin holds the 90 % interval.
TEST(Equivalence, HoldsWhereTheMarginHoldsThe90PercentInterval) {
  const Interval interval = *interval_of_mean(about_zero, 0.9);
  const double edge = std::max(-interval.low, interval.high);
  EXPECT_LT(*equivalence_p(about_zero, edge * 1.001), 0.05);
  EXPECT_GT(*equivalence_p(about_zero, edge * 0.999), 0.05);
}

}  // namespace
}  // namespace syncopate
