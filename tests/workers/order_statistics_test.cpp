#include "workers/theory/order_statistics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/math/distributions/exponential.hpp>
#include <boost/math/distributions/lognormal.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/pareto.hpp>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

#include "workers/base/random.hpp"

namespace syncopate {
namespace {

template <typename Law>
Quantile quantile_of(const Law& law) {
  return [law](double p) { return boost::math::quantile(law, p); };
}

// Expected maximum of N standard normal numbers: exact quadrature, and the approximation.
// Source: the project's fact sheet on DropCompute, section 2.3, an independent computation.
TEST(OrderStatistics, NormalMaximaMatchTheTable) {
  struct Row {
    int workers;
    double exact, bailey;
  };
  const Quantile normal = quantile_of(boost::math::normal());
  for (const Row& row :
       {Row{2, 0.564189584, 0.519755344}, Row{8, 1.423600306, 1.459014077}, Row{16, 1.765991393, 1.800454239},
        Row{32, 2.069668828, 2.099868202}, Row{64, 2.343733465, 2.369388030}, Row{112, 2.547838210, 2.570221847},
        Row{200, 2.746042447, 2.765523905}, Row{2048, 3.441799099, 3.453700437}}) {
    EXPECT_NEAR(expected_maximum(normal, row.workers), row.exact, 1e-8) << row.workers;
    EXPECT_NEAR(bailey_normal_maximum(row.workers, 0, 1), row.bailey, 1e-8) << row.workers;
  }
}

TEST(OrderStatistics, ClosedFormsAgreeWithQuadrature) {
  const boost::math::exponential exponential(2.0);
  const boost::math::pareto pareto(1.0, 2.5);
  for (const int k : {1, 50, 96, 98, 100}) {
    EXPECT_NEAR(expected_exponential(k, 100, 2.0), expected_order_statistic(quantile_of(exponential), k, 100), 1e-7);
    EXPECT_NEAR(expected_uniform(k, 100, 2, 5), expected_order_statistic([](double p) { return 2 + 3 * p; }, k, 100),
                1e-9);
    EXPECT_NEAR(expected_pareto(k, 100, 1.0, 2.5), expected_order_statistic(quantile_of(pareto), k, 100),
                1e-5 * expected_pareto(k, 100, 1.0, 2.5));
  }
}

// Source: the project's fact sheet on backup workers, section 2.1, checked there by Monte Carlo.
TEST(OrderStatistics, TabulatedValuesForAHundredWorkers) {
  EXPECT_NEAR(1 + expected_exponential(96, 100, 2), 2.552, 5e-4);
  EXPECT_NEAR(1 + expected_exponential(98, 100, 2), 2.844, 5e-4);
  EXPECT_NEAR(1 + expected_exponential(100, 100, 2), 3.594, 5e-4);
  EXPECT_NEAR(expected_pareto(96, 100, 1, 2.5), 3.522, 5e-4);
  EXPECT_NEAR(expected_pareto(98, 100, 1, 2.5), 4.516, 5e-4);
  EXPECT_NEAR(expected_pareto(100, 100, 1, 2.5), 9.407, 5e-4);
  EXPECT_NEAR(blom_normal(96, 100, 0, 1), 1.684, 5e-4);
  EXPECT_NEAR(blom_normal(100, 100, 0, 1), 2.499, 5e-4);
  EXPECT_NEAR(blom_lognormal(96, 100, 0, 0.3), 1.657, 5e-4);
  EXPECT_NEAR(blom_lognormal(100, 100, 0, 0.3), 2.116, 5e-4);
}

// The same section's Monte Carlo values; their last digit, and up to 0.4 % for the heavy-tailed maxima.
TEST(OrderStatistics, QuadratureAgreesWithTheTabulatedMonteCarlo) {
  const auto at = [](const Quantile& quantile, int k) { return expected_order_statistic(quantile, k, 100); };
  const Quantile exponential = [](double p) { return 1 - std::log1p(-p) / 2; };
  EXPECT_NEAR(at(exponential, 96), 2.553, 0.004);
  EXPECT_NEAR(at(exponential, 98), 2.847, 0.006);
  EXPECT_NEAR(at(exponential, 100), 3.591, 0.015);
  const Quantile pareto = quantile_of(boost::math::pareto(1.0, 2.5));
  EXPECT_NEAR(at(pareto, 96), 3.519, 0.014);
  EXPECT_NEAR(at(pareto, 98), 4.533, 0.025);
  EXPECT_NEAR(at(pareto, 100), 9.39, 0.04);
  const Quantile normal = quantile_of(boost::math::normal());
  EXPECT_NEAR(at(normal, 96), 1.686, 0.004);
  EXPECT_NEAR(at(normal, 100), 2.516, 0.01);
  const Quantile lognormal = quantile_of(boost::math::lognormal(0, 0.3));
  EXPECT_NEAR(at(lognormal, 96), 1.662, 0.003);
  EXPECT_NEAR(at(lognormal, 100), 2.139, 0.006);
}

// Section 2.1 has the alternating sum for Weibull laws, which is exact for small k.
TEST(OrderStatistics, QuadratureAgreesWithTheSumForWeibullLaws) {
  const double scale = 2, shape = 1.5;
  const int workers = 8;
  const Quantile weibull = [&](double p) { return scale * std::pow(-std::log1p(-p), 1 / shape); };
  const auto choose = [](int n, int k) {
    return std::exp(std::lgamma(n + 1.) - std::lgamma(k + 1.) - std::lgamma(n - k + 1.));
  };
  for (const int k : {1, 2, 4, 8}) {
    double sum = 0;
    for (int j = 0; j < k; ++j)
      sum += (j % 2 ? -1 : 1) * choose(k - 1, j) / std::pow(workers - k + j + 1, 1 + 1 / shape);
    const double expected = scale * std::tgamma(1 + 1 / shape) * k * choose(workers, k) * sum;
    EXPECT_NEAR(expected_order_statistic(weibull, k, workers), expected, 1e-7) << k;
  }
}

// Of two draws from {1, 2, 3} the larger is 1, 2, 3 with probability 1/9, 3/9, 5/9.
TEST(OrderStatistics, OfASampleByCounting) {
  const std::vector<double> sample = {1, 2, 3};
  EXPECT_NEAR(expected_order_statistic(sample, 2, 2), 22.0 / 9, 1e-12);
  EXPECT_NEAR(expected_order_statistic(sample, 1, 2), 14.0 / 9, 1e-12);
  EXPECT_NEAR(expected_order_statistic(sample, 1, 1), 2, 1e-12);
  EXPECT_NEAR(expected_order_statistic(std::vector{4.0}, 3, 7), 4, 1e-12);
  EXPECT_THROW(expected_order_statistic(std::vector<double>{}, 1, 1), std::invalid_argument);
}

TEST(OrderStatistics, OfAFineSampleThatOfItsLaw) {
  std::vector<double> sample;
  constexpr int values = 20000;
  for (int i = 0; i < values; ++i) sample.push_back(-std::log1p(-(i + 0.5) / values));
  for (const int k : {1, 8, 15})
    EXPECT_NEAR(expected_order_statistic(sample, k, 16), expected_exponential(k, 16, 1), 1e-4);
}

TEST(OrderStatistics, TheMaximumOfUnlikeNormalTimes) {
  const std::vector<NormalTime> alike(16, {3, 0.5});
  EXPECT_NEAR(expected_maximum(alike), 3 + 0.5 * 1.765991393, 1e-7);  // as tabulated
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

// Of two standard normal times the maximum has mean 1 / sqrt(pi) and variance 1 - 1 / pi; of four, 1.029375373 and
// 0.491715 (standard tables).
TEST(OrderStatistics, TheLawOfAMaximum) {
  const double pi = std::numbers::pi;
  const NormalTime of_two = law_of_maximum(std::vector<NormalTime>{{3, 2}, {3, 2}});
  EXPECT_NEAR(of_two.mean, 3 + 2 / std::sqrt(pi), 1e-7);
  EXPECT_NEAR(of_two.deviation, 2 * std::sqrt(1 - 1 / pi), 1e-6);
  for (const auto& four : {std::vector<NormalTime>{{0, 1, 4}}, std::vector<NormalTime>{{0, 1, 3}, {0, 1}}}) {
    EXPECT_NEAR(law_of_maximum(four).mean, 1.029375373, 1e-7);
    EXPECT_NEAR(law_of_maximum(four).deviation, std::sqrt(0.491715), 1e-6);
  }
  EXPECT_NEAR(law_of_maximum(std::vector<NormalTime>{{5, 0}, {2, 0}}).mean, 5, 1e-12);
  EXPECT_EQ(law_of_maximum(std::vector<NormalTime>{{5, 0}, {2, 0}}).deviation, 0);
}

// Against sums over a fine grid of the density.
TEST(OrderStatistics, TimesThatStopAtALimit) {
  constexpr double step = 1e-4;
  for (const double limit : {-1.0, 1.5, 2.0, 2.7, 9.0}) {
    double mean = 0, square = 0, of_three = 0;
    for (double z = -9; z < 9; z += step) {
      const double time = std::min(2 + 0.5 * z, limit),
                   density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
      const double below = 0.5 * std::erfc(-z / std::numbers::sqrt2);
      mean += step * density * time;
      square += step * density * time * time;
      of_three += step * 3 * below * below * density * time;
    }
    const NormalTime law = law_until({2, 0.5}, limit);
    EXPECT_NEAR(law.mean, mean, 1e-7) << limit;
    EXPECT_NEAR(law.deviation, std::sqrt(std::max(0.0, square - mean * mean)), 1e-5) << limit;
    EXPECT_NEAR(expected_maximum(std::vector<NormalTime>{{2, 0.5, 3}}, limit), of_three, 1e-6) << limit;
  }
  EXPECT_EQ(law_until({2, 0}, 1.5).mean, 1.5);
  EXPECT_EQ(law_until({2, 0.5}, std::numeric_limits<double>::infinity()).deviation, 0.5);
}

TEST(OrderStatistics, BlomIsNearTheExactMean) {
  const Quantile lognormal = quantile_of(boost::math::lognormal(0, 0.3));
  for (const int k : {50, 96, 100}) {
    const double exact = expected_order_statistic(lognormal, k, 100);
    EXPECT_NEAR(blom_lognormal(k, 100, 0, 0.3), exact, 0.012 * exact) << k;  // the sheet: at most 1.1 %
  }
}

TEST(OrderStatistics, DrawsThroughTheBetaLawHaveTheExactMeanAndVariance) {
  constexpr int draws = 40000;
  const Quantile exponential = quantile_of(boost::math::exponential(2.0));
  const RandomStream stream{.seed = 5};
  double sum = 0, squares = 0;
  for (std::uint32_t i = 0; i < draws; ++i) {
    const double value = draw_order_statistic(exponential, 96, 100, stream.uniform(i));
    sum += value;
    squares += value * value;
  }
  const double mean = sum / draws, variance = squares / draws - mean * mean;
  const double exact = variance_exponential(96, 100, 2);
  EXPECT_NEAR(mean, expected_exponential(96, 100, 2), 4 * std::sqrt(exact / draws));  // four standard errors
  EXPECT_NEAR(variance, exact, 4 * exact * std::sqrt(3.0 / draws));  // of a variance, for a moderate kurtosis
}

TEST(OrderStatistics, UnequalWorkersByTheirOwnProbabilities) {
  EXPECT_NEAR(probability_of_at_least(2, std::vector{0.5, 0.5, 0.5}), 0.5, 1e-12);
  // At least one of two: 1 - 0.9 x 0.7; both: 0.1 x 0.3.
  EXPECT_NEAR(probability_of_at_least(1, std::vector{0.1, 0.3}), 0.37, 1e-12);
  EXPECT_NEAR(probability_of_at_least(2, std::vector{0.1, 0.3}), 0.03, 1e-12);
  EXPECT_NEAR(probability_of_at_least(0, std::vector{0.1, 0.3}), 1.0, 1e-12);
}

TEST(OrderStatistics, MoveAndStretchWithTheirLaw) {
  for (const auto& [k, workers] : {std::pair{1, 1}, {2, 7}, {7, 7}, {90, 100}}) {
    EXPECT_NEAR(expected_exponential(k, workers, 4), expected_exponential(k, workers, 1) / 4, 1e-12);
    EXPECT_NEAR(variance_exponential(k, workers, 4), variance_exponential(k, workers, 1) / 16, 1e-12);
    EXPECT_NEAR(expected_pareto(k, workers, 3, 2.5), 3 * expected_pareto(k, workers, 1, 2.5), 1e-9);
    EXPECT_NEAR(expected_uniform(k, workers, 2, 5), 2 + 3 * expected_uniform(k, workers, 0, 1), 1e-12);
    EXPECT_NEAR(blom_normal(k, workers, 3, 2), 3 + 2 * blom_normal(k, workers, 0, 1), 1e-12);
    EXPECT_NEAR(std::log(blom_lognormal(k, workers, 0.5, 0.3)), 0.5 + 0.3 * blom_normal(k, workers, 0, 1), 1e-12);
  }
  for (const int workers : {2, 16, 200})
    EXPECT_NEAR(bailey_normal_maximum(workers, 3, 2), 3 + 2 * bailey_normal_maximum(workers, 0, 1), 1e-12);
  const std::vector<NormalTime> standard = {{0, 1, 3}, {0.5, 2}}, moved = {{7, 4, 3}, {9, 8}};
  EXPECT_NEAR(expected_maximum(moved), 7 + 4 * expected_maximum(standard), 1e-6);
  EXPECT_NEAR(expected_maximum(moved, 11), 7 + 4 * expected_maximum(standard, 1), 1e-6);
  EXPECT_NEAR(law_of_maximum(moved).mean, 7 + 4 * law_of_maximum(standard).mean, 1e-6);
  EXPECT_NEAR(law_of_maximum(moved).deviation, 4 * law_of_maximum(standard).deviation, 1e-5);
}

TEST(OrderStatistics, WhatDoesNotExistIsAnError) {
  EXPECT_THROW(expected_uniform(0, 4, 0, 1), std::invalid_argument);
  EXPECT_THROW(expected_uniform(5, 4, 0, 1), std::invalid_argument);
  EXPECT_THROW(expected_pareto(100, 100, 1, 1.0), std::invalid_argument);  // the maximum needs a shape above 1
  EXPECT_NO_THROW(expected_pareto(99, 100, 1, 1.0));
  EXPECT_THROW(bailey_normal_maximum(1, 0, 1), std::invalid_argument);
}

}  // namespace
}  // namespace syncopate
