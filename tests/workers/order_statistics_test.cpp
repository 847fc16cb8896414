#include <gtest/gtest.h>

#include <boost/math/distributions/exponential.hpp>
#include <boost/math/distributions/lognormal.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/pareto.hpp>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "tests/workers/closed_forms.hpp"
#include "workers/theory/paper_formulas.hpp"

namespace syncopate {
namespace {

// Expected maximum of N standard normal numbers, by exact quadrature and by Bailey's approximation (Giladi et al. 2023,
// Eq. 4). Source: an independent computation.
TEST(OrderStatistics, NormalMaximaMatchTheTable) {
  struct Row {
    int workers;
    double exact, bailey;
  };
  for (const Row& row :
       {Row{2, 0.564189584, 0.519755344}, Row{8, 1.423600306, 1.459014077}, Row{16, 1.765991393, 1.800454239},
        Row{32, 2.069668828, 2.099868202}, Row{64, 2.343733465, 2.369388030}, Row{112, 2.547838210, 2.570221847},
        Row{200, 2.746042447, 2.765523905}, Row{2048, 3.441799099, 3.453700437}}) {
    EXPECT_NEAR(expected_maximum(std::vector<NormalTime>{{0, 1, row.workers}}), row.exact, 1e-7) << row.workers;
    EXPECT_NEAR(expected_slowest_worker(row.workers, 1, {0, 1}), row.bailey, 1e-8) << row.workers;
  }
}

// The larger of two draws from {1, 2, 3} is 1, 2 or 3 with probability 1/9, 3/9 or 5/9.
TEST(OrderStatistics, OfASampleByCounting) {
  const std::vector<double> sample = {1, 2, 3};
  EXPECT_NEAR(expected_order_statistic(sample, 2, 2), 22.0 / 9, 1e-12);
  EXPECT_NEAR(expected_order_statistic(sample, 1, 2), 14.0 / 9, 1e-12);
  EXPECT_NEAR(expected_order_statistic(sample, 1, 1), 2, 1e-12);
  EXPECT_NEAR(expected_order_statistic(std::vector{4.0}, 3, 7), 4, 1e-12);
  EXPECT_THROW(expected_order_statistic(std::vector<double>{}, 1, 1), std::invalid_argument);
}

template <typename Law>
std::vector<double> fine_sample(const Law& law) {
  std::vector<double> sample;
  constexpr int values = 20000;
  for (int i = 0; i < values; ++i) sample.push_back(quantile(law, (i + 0.5) / values));
  return sample;
}

// Expected values are closed forms for the exponential and the Pareto law. For the normal and the log-normal law they
// are from Monte Carlo, and their last digit is uncertain.
TEST(OrderStatistics, OfAFineSampleThatOfItsLaw) {
  const auto exponential = fine_sample(boost::math::exponential(2));
  const auto pareto = fine_sample(boost::math::pareto(1, 2.5));
  const auto normal = fine_sample(boost::math::normal());
  const auto lognormal = fine_sample(boost::math::lognormal(0, 0.3));
  EXPECT_NEAR(1 + expected_order_statistic(exponential, 96, 100), 2.552, 6e-4);
  EXPECT_NEAR(1 + expected_order_statistic(exponential, 98, 100), 2.844, 6e-4);
  EXPECT_NEAR(expected_order_statistic(pareto, 96, 100), 3.522, 6e-4);
  EXPECT_NEAR(expected_order_statistic(pareto, 98, 100), 4.516, 6e-4);
  EXPECT_NEAR(expected_order_statistic(normal, 96, 100), 1.686, 0.004);
  EXPECT_NEAR(expected_order_statistic(lognormal, 96, 100), 1.662, 0.003);
  for (const int k : {1, 8, 15})
    EXPECT_NEAR(expected_order_statistic(exponential, k, 16), expected_exponential(k, 16, 2), 1e-4);
}

TEST(OrderStatistics, TheMaximumOfUnlikeNormalTimes) {
  const std::vector<NormalTime> alike(16, {3, 0.5});
  EXPECT_NEAR(expected_maximum(alike), 3 + 0.5 * 1.765991393, 1e-7);  // N = 16 in NormalMaximaMatchTheTable
  // Clark 1961: E[max(X, Y)] = a Phi(d) + b Phi(-d) + theta phi(d), theta^2 = s^2 + t^2, d = (a - b) / theta.
  const boost::math::normal normal;
  const double theta = std::hypot(1.0, 3.0), d = (5 - 4) / theta;
  const double clark = 5 * cdf(normal, d) + 4 * cdf(normal, -d) + theta * pdf(normal, d);
  EXPECT_NEAR(expected_maximum(std::vector<NormalTime>{{5, 1}, {4, 3}}), clark, 1e-7);
  EXPECT_NEAR(expected_maximum(std::vector<NormalTime>{{0.5, 0}, {0, 1}}), 0.5 * cdf(normal, 0.5) + pdf(normal, 0.5),
              1e-6);
  EXPECT_EQ(expected_maximum(std::vector<NormalTime>{{1, 0}, {2, 0}}), 2);
  EXPECT_THROW(expected_maximum(std::vector<NormalTime>{}), std::invalid_argument);
}

TEST(OrderStatistics, MoveAndStretchWithTheirLaw) {
  for (const int workers : {2, 16, 200})
    EXPECT_NEAR(expected_slowest_worker(workers, 1, {3, 2}), 3 + 2 * expected_slowest_worker(workers, 1, {0, 1}),
                1e-12);
  const std::vector<NormalTime> standard = {{0, 1, 3}, {0.5, 2}}, moved = {{7, 4, 3}, {9, 8}};
  EXPECT_NEAR(expected_maximum(moved), 7 + 4 * expected_maximum(standard), 1e-6);
}

TEST(OrderStatistics, WhatDoesNotExistIsAnError) {
  const std::vector<double> sample = {1, 2};
  EXPECT_THROW(expected_order_statistic(sample, 0, 4), std::invalid_argument);
  EXPECT_THROW(expected_order_statistic(sample, 5, 4), std::invalid_argument);
  EXPECT_THROW(expected_slowest_worker(1, 1, {0, 1}), std::invalid_argument);
}

}  // namespace
}  // namespace syncopate
