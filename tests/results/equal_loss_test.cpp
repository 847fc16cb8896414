
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "results/statistics.hpp"
#include "workers/base/random.hpp"

namespace syncopate {
namespace {

// Returns 160 evaluations, one every 5 steps, of a noisy loss that falls as a power of the step. A method with pace p
// needs p times as many steps.
std::vector<LossAt> run(double power, double pace, double noise, std::uint64_t seed) {
  std::vector<double> z(160);
  fill_standard_normal({.seed = seed, .purpose = Purpose::algorithm}, 0, z);
  std::vector<LossAt> points;
  for (std::size_t i = 0; i < z.size(); ++i) {
    const double step = 5.0 * static_cast<double>(i);
    points.push_back({step, 0.3 + 2 * std::pow(1 + step / pace / 20, -power) + noise * z[i]});
  }
  return points;
}

TEST(EqualLoss, OfRunsWithoutNoiseIsTheirPace) {
  for (const double power : {0.5, 1.0, 2.0}) {
    EXPECT_DOUBLE_EQ(ratio_of(passages_through_equal_losses(run(power, 1, 0, 1), run(power, 1, 0, 1))), 1);
    EXPECT_NEAR(ratio_of(passages_through_equal_losses(run(power, 1.03, 0, 1), run(power, 1, 0, 1))), 1.03, 0.003);
    EXPECT_NEAR(ratio_of(passages_through_equal_losses(run(power, 1.5, 0, 1), run(power, 1, 0, 1))), 1.5, 0.04);
  }
}

// The noise corresponds to a final loss of 0.0036 above the best one in the runs of Giladi et al. 2023, Figure 5.
TEST(EqualLoss, IsOneOnIdenticalMethodsAndTheirPaceOtherwise) {
  constexpr int runs = 1000;
  for (const double power : {0.5, 1.0, 2.0})
    for (const double pace : {1.0, 1.03}) {
      std::vector<double> logs;
      for (std::uint64_t seed = 0; seed < runs; ++seed) {
        const auto own = run(power, pace, 0.002, 2 * seed + 1), other = run(power, 1, 0.002, 2 * seed + 2);
        logs.push_back(std::log(ratio_of(passages_through_equal_losses(own, other))));
      }
      EXPECT_NEAR(std::exp(statistics(logs).mean), pace, 0.01) << power;
    }
}

TEST(EqualLoss, IsSymmetric) {
  const auto a = run(1, 1.1, 0.01, 1), b = run(1, 1, 0.01, 2);
  const auto there = passages_through_equal_losses(a, b), back = passages_through_equal_losses(b, a);
  EXPECT_NEAR(ratio_of(there) * ratio_of(back), 1, 1e-12);
  EXPECT_NEAR(difference_of(there) + difference_of(back), 0, 1e-9);
}

TEST(EqualLoss, ComparesOnlyLossesThatBothReach) {
  // The logarithms of the losses fall by 1 per step in one run and by 1/2 in the other, which starts lower.
  std::vector<LossAt> fast, slow;
  for (int step = 0; step < 12; ++step) {
    fast.push_back({static_cast<double>(step), std::exp(5.0 - step)});
    slow.push_back({static_cast<double>(step), std::exp(2.0 - step / 2.0)});
  }
  // Smoothed over five evaluations, `fast` falls from 3 at step 2 to -4 at step 9, and `slow` from 1 at step 2 to -2.5
  // at step 9. So levels are from 1 to -2.5.
  const auto passages = passages_through_equal_losses(fast, slow);
  ASSERT_EQ(passages.size(), 10u);
  for (std::size_t i = 0; i < passages.size(); ++i) {
    const double level = 1 - 3.5 * (static_cast<double>(i) + 0.5) / 10;
    EXPECT_NEAR(passages[i].own, 5 - level, 1e-9);
    EXPECT_NEAR(passages[i].other, 2 * (2 - level), 1e-9);
  }
}

TEST(EqualLoss, OfTooFewEvaluationsOrOfLossesApartIsNone) {
  const std::vector<LossAt> five(5, {1, 1});
  EXPECT_TRUE(passages_through_equal_losses(five, run(1, 1, 0, 1)).empty());
  std::vector<LossAt> above;
  for (int step = 0; step < 10; ++step) above.push_back({static_cast<double>(step), 10.0 - 0.1 * step});
  EXPECT_TRUE(passages_through_equal_losses(above, run(1, 1, 0, 1)).empty());
  std::vector<LossAt> negative = above;
  negative.back().loss = -1;
  EXPECT_TRUE(passages_through_equal_losses(negative, above).empty());
}

}  // namespace
}  // namespace syncopate
