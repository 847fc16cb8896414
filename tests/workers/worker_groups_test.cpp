// Groups of workers with equal distributions of step times, and which of their workers are drawn to represent them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "workers/theory/sampled_times.hpp"
#include "workers/time/delays.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;
using Delays = std::vector<std::shared_ptr<const DelayProcess>>;

std::vector<int> numbers(int begin, int end, int left_out = -1) {
  std::vector<int> all;
  for (int n = begin; n < end; ++n)
    if (n != left_out) all.push_back(n);
  return all;
}

TEST(WorkerGroups, AreTheWorkersThemselvesWhereTheyAreFew) {
  const ComputeTime time(7, 1.0, {1, 1, 3}, {exponential_delay(0.5)});
  for (const int most : {3, 100}) {
    const auto groups = group_workers(time, 3, 2, most);
    ASSERT_EQ(groups.size(), 3u);
    for (int n = 0; n < 3; ++n) {
      const WorkerGroup& group = groups[static_cast<std::size_t>(n)];
      EXPECT_EQ(group.workers, 1);
      EXPECT_THAT(group.drawn, ElementsAre(Rank{n}));
      EXPECT_DOUBLE_EQ(group.declared.mean_s, 2 * ((n < 2 ? 1 : 3) + 0.5));
      EXPECT_DOUBLE_EQ(group.declared.variance_s2, 2 * 0.25);
    }
  }
}

// 100 workers: worker 3's delay varies around the others' mean, and ten workers are always slower.
TEST(WorkerGroups, AreThoseOfOneLawAndShareTheDrawsByTheirNumber) {
  std::vector<double> factors(100, 1.0);
  std::fill(factors.begin() + 90, factors.end(), 2.0);
  const ComputeTime time(7, 1.0, factors,
                         {scoped_delay(constant_delay(0.5), {.workers = numbers(0, 100, 3)}),
                          scoped_delay(exponential_delay(0.5), {.workers = {3}})});
  const auto groups = group_workers(time, 100, 2, 20);
  ASSERT_EQ(groups.size(), 3u);  // sorted by mean, then by variance
  EXPECT_EQ(groups[0].workers, 89);
  EXPECT_EQ(groups[1].workers, 1);
  EXPECT_EQ(groups[2].workers, 10);
  EXPECT_DOUBLE_EQ(groups[0].declared.mean_s, 3);
  EXPECT_DOUBLE_EQ(groups[0].declared.variance_s2, 0);
  EXPECT_DOUBLE_EQ(groups[1].declared.mean_s, 3);
  EXPECT_DOUBLE_EQ(groups[1].declared.variance_s2, 2 * 0.25);
  EXPECT_DOUBLE_EQ(groups[2].declared.mean_s, 5);
  EXPECT_THAT(groups[1].drawn, ElementsAre(Rank{3}));  // a fifth of one worker, rounded up
  EXPECT_THAT(groups[2].drawn, ElementsAre(Rank{90}, Rank{95}));
  // 17 of the 89 workers, spread over all of them.
  const auto& drawn = groups[0].drawn;
  ASSERT_EQ(drawn.size(), 17u);
  EXPECT_EQ(drawn.front(), Rank{0});
  for (std::size_t i = 1; i < drawn.size(); ++i) {
    EXPECT_NE(drawn[i], Rank{3});
    EXPECT_GE(drawn[i].value - drawn[i - 1].value, 5);
    EXPECT_LE(drawn[i].value - drawn[i - 1].value, 7);
  }
  EXPECT_GE(drawn.back().value, 83);
}

class WithoutVariance final : public DelayProcess {
 public:
  void add(const RandomStream&, std::uint32_t, std::span<double>) const override {}
  double mean_s() const override { return 0.5; }
};

// Workers of unknown variance are one group. Other workers with the same mean and a known variance are another.
TEST(WorkerGroups, WhoseVarianceNobodyKnowsAreOneAllTheSame) {
  const auto known = scoped_delay(constant_delay(0.5), {.workers = numbers(10, 20)});
  const auto unknown = scoped_delay(std::make_shared<WithoutVariance>(), {.workers = numbers(0, 10)});
  const auto unknown_too = scoped_delay(std::make_shared<WithoutVariance>(), {.workers = numbers(20, 30)});
  const auto groups = group_workers(ComputeTime(7, 1.0, {}, {known, unknown, unknown_too}), 30, 1, 15);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].workers, 10);
  EXPECT_EQ(groups[0].declared.variance_s2, 0);
  EXPECT_EQ(groups[0].drawn.size(), 5u);
  EXPECT_EQ(groups[1].workers, 20);
  EXPECT_TRUE(std::isnan(groups[1].declared.variance_s2));
  EXPECT_EQ(groups[1].drawn.size(), 10u);
}

// 40 workers whose steps take 1.00, 1.01, ..., 1.39 s, in a mixed order of ranks.
TEST(WorkerGroups, OfTooManyLawsKeepTheSlowestApartAndJoinNeighbours) {
  constexpr int workers = 40;
  std::vector<double> factors;
  for (int n = 0; n < workers; ++n) factors.push_back(1 + 0.01 * (n * 7 % workers));
  const ComputeTime time(7, 1.0, factors, {});
  for (const int most : {8, 9, 20, 39}) {
    SCOPED_TRACE(most);
    const auto groups = group_workers(time, workers, 3, most);
    ASSERT_EQ(groups.size(), static_cast<std::size_t>(most));
    const int apart = most / 2;
    int slower = 0;  // workers that are slower than this group's first
    for (int g = 0; g < most; ++g) {
      const WorkerGroup& group = groups[static_cast<std::size_t>(g)];
      if (g >= most - apart) {
        EXPECT_EQ(group.workers, 1);
      } else {
        EXPECT_NEAR(group.workers, static_cast<double>(workers - apart) / (most - apart), 1);
      }
      double mean = 0, square = 0;
      for (int i = slower; i < slower + group.workers; ++i) mean += 3 * (1 + 0.01 * i) / group.workers;
      for (int i = slower; i < slower + group.workers; ++i)
        square += std::pow(3 * (1 + 0.01 * i) - mean, 2) / group.workers;
      EXPECT_NEAR(group.declared.mean_s, mean, 1e-12);
      EXPECT_NEAR(group.declared.variance_s2, square, 1e-12);
      ASSERT_FALSE(group.drawn.empty());
      for (const Rank drawn : group.drawn) {
        const int place = drawn.value * 7 % workers;
        EXPECT_GE(place, slower);
        EXPECT_LT(place, slower + group.workers);
      }
      slower += group.workers;
    }
    EXPECT_EQ(slower, workers);
  }
}

// Three workers have mean 3 and variance 4, one has mean 7 and variance 0. The variance is 3 within and 3 between.
TEST(WorkerGroups, TogetherVaryWithinAndBetween) {
  const ComputeTime time(
      7, 1.0, {},
      {scoped_delay(exponential_delay(2), {.workers = {0, 1, 2}}), scoped_delay(constant_delay(6), {.workers = {3}})});
  const auto groups = group_workers(time, 4, 1, 1);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].workers, 4);
  EXPECT_DOUBLE_EQ(groups[0].declared.mean_s, 4);
  EXPECT_DOUBLE_EQ(groups[0].declared.variance_s2, 6);
}

}  // namespace
}  // namespace syncopate
