#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/math/distributions/exponential.hpp>
#include <boost/math/distributions/gamma.hpp>
#include <boost/math/distributions/lognormal.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/pareto.hpp>
#include <boost/math/distributions/uniform.hpp>
#include <boost/math/distributions/weibull.hpp>
#include <boost/math/quadrature/tanh_sinh.hpp>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <vector>

#include "tests/workers/instruction_sets.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/quantile_table.hpp"

namespace syncopate {
namespace {

constexpr RandomStream test_stream{.seed = 2023, .worker = Rank{3}, .step = Step{11}};

std::vector<double> draws(const DelayProcess& process, std::size_t n, std::uint32_t first = 0) {
  std::vector<double> sums(n, 0.0);
  process.add(test_stream, first, sums);
  return sums;
}

// A family: the process, and what theory says of it, from Boost or spelled out here.
struct Family {
  std::string name;
  std::shared_ptr<const DelayProcess> process;
  std::function<double(double)> distribution_function;
  double mean;
  double variance;
  double minimum = 0;
};

constexpr double mu = 4, sigma = 1, beta = 5.5;
const double alpha = 2 * std::exp(4.5);

double bounded_cdf(double x, double scale) {
  return x >= beta * scale ? 1 : cdf(boost::math::lognormal(mu, sigma), alpha * x / scale);
}

// E[min(Z / alpha, beta)^power] by quadrature over ln Z up to the bound, and the mass beyond it.
double bounded_moment(int power) {
  const double end = (std::log(alpha * beta) - mu) / sigma;
  const boost::math::normal standard;
  const auto integrand = [&](double z) { return std::pow(std::exp(mu + sigma * z) / alpha, power) * pdf(standard, z); };
  const double below = boost::math::quadrature::tanh_sinh<double>().integrate(integrand, -12.0, end);
  return below + std::pow(beta, power) * cdf(complement(standard, end));
}

// The reference code's weights, summed from the large lengths down: another order than the table's.
double table_sum(double max_length, int power) {
  double sum = 0;
  for (int length = 999; length >= 1; --length) {
    if (length > max_length) continue;
    sum += std::pow(length, power - 1) * std::exp(-std::pow(std::log(length) - 4, 2) / 2);
  }
  return sum;
}
double table_moment(int power) { return table_sum(999, power) / table_sum(999, 0); }

template <typename Distribution>
std::function<double(double)> cdf_of(const Distribution& distribution) {
  return [=](double x) { return cdf(distribution, x); };
}

std::vector<Family> families() {
  using namespace boost::math;
  const double per_length = 0.5 / table_moment(1);
  const double formula_mean = bounded_moment(1);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto exponential_cdf = cdf_of(boost::math::exponential(2));
  const double e = std::exp(1.0);
  const double gamma_2_5 = 0.75 * std::sqrt(std::numbers::pi), gamma_4 = 6, gamma_1_5 = std::sqrt(std::numbers::pi) / 2;
  return {
      {"uniform", uniform_delay(0.2, 0.7), cdf_of(boost::math::uniform(0.2, 0.7)), 0.45, 0.25 / 12, 0.2},
      {"normal", normal_delay(0.5, 0.6), cdf_of(boost::math::normal(0.5, 0.6)), 0.5, 0.36, -infinity},
      {"exponential", exponential_delay(0.5), exponential_cdf, 0.5, 0.25},
      {"shifted exponential", shifted_exponential_delay(0.3, 0.5),
       [=](double x) { return x < 0.3 ? 0 : exponential_cdf(x - 0.3); }, 0.8, 0.25, 0.3},
      {"Weibull, shape 2", weibull_delay(2, 0.4), cdf_of(weibull(2, 0.4)), 0.4 * gamma_1_5,
       0.16 * (1 - gamma_1_5 * gamma_1_5)},
      {"Weibull, shape 2/3", weibull_delay(2.0 / 3, 0.4), cdf_of(weibull(2.0 / 3, 0.4)), 0.4 * gamma_2_5,
       0.16 * (gamma_4 - gamma_2_5 * gamma_2_5)},
      {"Pareto", pareto_delay(10, 0.6), cdf_of(pareto(0.6, 10)), 6.0 / 9, 0.36 * 10 / (81.0 * 8), 0.6},
      {"Bernoulli", bernoulli_delay(0.4255, 1.175), [](double x) { return x < 1.175 ? 1 - 0.4255 : 1; }, 0.4255 * 1.175,
       0.4255 * 0.5745 * 1.175 * 1.175},
      // ln X ~ N(-1, 1/2): mean e^(-3/4), variance (e^(1/2) - 1) e^(-3/2).
      {"log-normal", lognormal_delay(-1, std::sqrt(0.5), 3), cdf_of(lognormal(std::log(3) - 1, std::sqrt(0.5))),
       3 * std::pow(e, -0.75), 9 * (std::sqrt(e) - 1) * std::pow(e, -1.5)},
      {"gamma", gamma_delay(0.74, 0.675), cdf_of(gamma_distribution(0.74, 0.675)), 0.74 * 0.675, 0.74 * 0.675 * 0.675},
      {"narrow gamma", gamma_delay(400, 0.001), cdf_of(gamma_distribution(400.0, 0.001)), 0.4, 0.0004},
      {"bounded log-normal table", tabulated_lognormal_delay(0.5),
       [=](double x) { return table_sum(x / per_length + 1e-6, 0) / table_sum(999, 0); }, 0.5,
       per_length * per_length * table_moment(2) - 0.25, per_length},
      {"bounded log-normal formula", bounded_lognormal_delay({}, 1), [](double x) { return bounded_cdf(x, 1); },
       formula_mean, bounded_moment(2) - formula_mean * formula_mean},
  };
}

TEST(Delays, MomentsAndMinimumOfTheProcessAreThoseOfTheory) {
  for (const Family& family : families()) {
    EXPECT_NEAR(family.process->mean_s(), family.mean, 1e-12) << family.name;
    EXPECT_NEAR(family.process->variance_s2(), family.variance, 1e-11) << family.name;
    if (std::isfinite(family.minimum)) {
      EXPECT_NEAR(family.process->minimum_s(), family.minimum, 1e-12) << family.name;
    } else {
      EXPECT_EQ(family.process->minimum_s(), family.minimum) << family.name;
    }
    const StepLaw law = family.process->step_law(test_stream, 12);
    EXPECT_NEAR(law.mean_s, 12 * family.mean, 1e-11) << family.name;
    EXPECT_NEAR(law.variance_s2, 12 * family.variance, 1e-10) << family.name;
  }
  constexpr double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(pareto_delay(1, 2)->mean_s(), infinity);
  EXPECT_EQ(pareto_delay(1.5, 2)->mean_s(), 6);
  EXPECT_EQ(pareto_delay(2, 2)->variance_s2(), infinity);
  EXPECT_EQ(pareto_delay(1, 0)->mean_s(), 0);
  EXPECT_EQ(bernoulli_delay(1, 3)->minimum_s(), 3);
}

// Four standard errors of the mean, and four of the variance from the sample's own fourth moment: a family of right
// draws fails with probability 1.3e-4; the seed is fixed.
TEST(Delays, DrawsHaveTheMomentsOfTheory) {
  constexpr std::size_t n = 400'000;
  for (const Family& family : families()) {
    const std::vector<double> sample = draws(*family.process, n);
    EXPECT_GE(std::ranges::min(sample), family.minimum - 1e-15) << family.name;
    double mean = 0, second = 0, fourth = 0;
    for (const double x : sample) mean += x / n;
    for (const double x : sample) {
      const double square = (x - family.mean) * (x - family.mean);
      second += square / n, fourth += square * square / n;
    }
    EXPECT_NEAR(mean, family.mean, 4 * std::sqrt(family.variance / n)) << family.name;
    EXPECT_NEAR(second, family.variance, 4 * std::sqrt((fourth - second * second) / n)) << family.name;
  }
}

// Kolmogorov-Smirnov at the significance level 0.001: D sqrt(n) below 1.9495. The seed is fixed, so the
// test always passes or always fails. Compared from the
// right only, which is exact where the distribution function steps and 1/n short elsewhere.
TEST(Delays, DrawsFollowTheExactDistributionFunction) {
  constexpr std::size_t n = 50'000;
  for (const Family& family : families()) {
    std::vector<double> sample = draws(*family.process, n, 1000);
    std::ranges::sort(sample);
    double distance = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (i + 1 < n && sample[i + 1] == sample[i]) continue;  // the last of equal values tells the fraction
      const double fraction = static_cast<double>(i + 1) / n;
      distance = std::max(distance, std::abs(fraction - family.distribution_function(sample[i])));
    }
    EXPECT_LT(distance * std::sqrt(n), 1.9495) << family.name;
  }
}

// Number i of the stream becomes delay i: compared with Boost's quantiles draw by draw.
TEST(Delays, EveryDrawIsTheQuantileOfItsUniformNumber) {
  const auto expect = [](const DelayProcess& process, const auto& distribution, double shift, double scale,
                         double bound, const char* name) {
    constexpr std::size_t n = 30'000;
    const std::vector<double> sample = draws(process, n);
    double worst = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      const double u = test_stream.uniform(i);
      const double standard = u < 0.5 ? quantile(distribution, u) : quantile(complement(distribution, 1 - u));
      const double expected = std::min(shift + scale * standard, bound);
      worst = std::max(worst, std::abs(sample[i] - expected) / std::max(std::abs(expected), 0.01 * scale));
    }
    EXPECT_LT(worst, 1e-12) << name;
  };
  using namespace boost::math;
  constexpr double inf = std::numeric_limits<double>::infinity();
  expect(*normal_delay(2, 0.5), normal(), 2, 0.5, inf, "normal");
  expect(*exponential_delay(3), boost::math::exponential(), 0, 3, inf, "exponential");
  expect(*shifted_exponential_delay(0.7, 3), boost::math::exponential(), 0.7, 3, inf, "shifted exponential");
  expect(*weibull_delay(0.3, 2), weibull(0.3), 0, 2, inf, "Weibull, heavy tail");
  expect(*weibull_delay(3, 2), weibull(3), 0, 2, inf, "Weibull, light tail");
  expect(*pareto_delay(0.8, 2), pareto(1, 0.8), 0, 2, inf, "Pareto without a mean");
  expect(*lognormal_delay(-1, 0.5, 2), lognormal(0, 0.5), 0, 2 / std::exp(1), inf, "log-normal");
  expect(*gamma_delay(0.74, 2), gamma_distribution(0.74), 0, 2, inf, "gamma");
  expect(*gamma_delay(0.05, 2), gamma_distribution(0.05), 0, 2, inf, "gamma, very skewed");
  expect(*gamma_delay(30, 2), gamma_distribution(30.0), 0, 2, inf, "gamma, nearly normal");
  expect(*bounded_lognormal_delay({}, 2), lognormal(mu - std::log(alpha), sigma), 0, 2, 2 * beta, "log-normal");
  expect(*bounded_lognormal_delay({.mu = 1, .sigma = 3, .alpha = 2, .beta = 1e6}, 1), lognormal(1 - std::log(2), 3), 0,
         1, 1e6, "wide log-normal");
}

nlohmann::json golden() {
  std::ifstream file(SYNCOPATE_SOURCE_DIR "/tests/golden/dropcompute_delays.json");
  return nlohmann::json::parse(file);
}

TEST(BoundedLogNormalTable, HasTheMomentsOfTheReferenceCode) {
  const auto table = golden().at("table");
  const LengthTable& lengths = LengthTable::of_reference_code();
  EXPECT_NEAR(lengths.mean(), table.at("mean_length").get<double>(), 1e-11);
  EXPECT_NEAR(0.25 * lengths.variance() / (lengths.mean() * lengths.mean()), table.at("variance").get<double>(), 1e-12);
  double mean = 0, second = 0;
  for (std::size_t length = 1; length <= LengthTable::lengths; ++length) {
    const double probability = lengths.cumulative(length) - (length == 1 ? 0 : lengths.cumulative(length - 1));
    const double epsilon = 0.5 * static_cast<double>(length) / lengths.mean();
    mean += probability * epsilon, second += probability * epsilon * epsilon;
  }
  EXPECT_NEAR(mean, table.at("mean").get<double>(), 1e-12);
  EXPECT_NEAR(second - mean * mean, table.at("variance").get<double>(), 1e-12);
  EXPECT_NEAR(0.5 * lengths.quantile(1e-9) / lengths.mean(), table.at("minimum").get<double>(), 5e-7);
  EXPECT_NEAR(0.5 * lengths.quantile(1 - 0x1p-53) / lengths.mean(), table.at("maximum").get<double>(), 1e-12);
}

TEST(BoundedLogNormalTable, ReproducesTheGoldenDraws) {
  const auto expected = golden().at("draws");
  const LengthTable& lengths = LengthTable::of_reference_code();
  for (std::size_t i = 0; i < expected.at("u").size(); ++i) {
    const double epsilon = 0.5 * lengths.quantile(expected["u"][i].get<double>()) / lengths.mean();
    EXPECT_NEAR(epsilon, expected["epsilon"][i].get<double>(), 1e-13) << "draw " << i;
  }
}

TEST(BoundedLogNormalTable, QuantileIsTheFirstLengthWhoseCumulativeExceedsU) {
  const LengthTable& lengths = LengthTable::of_reference_code();
  for (std::size_t length = 1; length < LengthTable::lengths; ++length) {
    const double boundary = lengths.cumulative(length);
    ASSERT_EQ(lengths.quantile(std::nextafter(boundary, 0)), length);
    ASSERT_EQ(lengths.quantile(boundary), length + 1);
  }
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    const double u = test_stream.uniform(i);
    std::size_t length = 1;
    while (lengths.cumulative(length) <= u) ++length;
    ASSERT_EQ(lengths.quantile(u), length);
  }
}

TEST(BoundedLogNormalFormula, HasTheMomentsOfItsClosedForm) {
  const auto formula = golden().at("formula");  // six digits
  const double mean = BoundedLogNormal{}.mean();
  EXPECT_NEAR(mean, formula.at("mean").get<double>(), 5e-7);
  EXPECT_NEAR(mean, bounded_moment(1), 1e-12);
  EXPECT_NEAR(bounded_moment(2) - mean * mean, formula.at("variance").get<double>(), 5e-7);
}

TEST(BoundedLogNormalFormula, NeverExceedsItsBoundAndReachesIt) {
  const std::vector<double> sample = draws(*bounded_lognormal_delay({}, 0.01), 50'000);
  EXPECT_EQ(std::ranges::max(sample), beta * 0.01);
  const auto clipped = static_cast<double>(std::ranges::count(sample, beta * 0.01));
  const double expected = 50'000 * (1 - cdf(boost::math::lognormal(mu, sigma), alpha * beta));  // 0.00188 of all
  EXPECT_NEAR(clipped, expected, 5 * std::sqrt(expected));
}

TEST(Drift, GrowsWithTheStepUpToItsMaximum) {
  const auto drift = drift_delay(0.001, 0.0105);
  for (const auto& [step, expected] : {std::pair{0, 0.0}, {1, 0.001}, {10, 0.010}, {11, 0.0105}, {1000000, 0.0105}}) {
    std::vector<double> sums(2, 1.0);
    drift->add({.seed = 1, .worker = Rank{4}, .step = Step{step}}, 3, sums);
    EXPECT_THAT(sums, testing::Each(testing::DoubleEq(1 + expected))) << step;
  }
  EXPECT_EQ(drift->mean_s(), 0.0105);
  EXPECT_EQ(drift_delay(0, 0.0105)->mean_s(), 0);  // never grows
  EXPECT_EQ(drift->minimum_s(), 0);
}

TEST(Delays, AddToWhatIsThere) {
  std::vector<double> sums = {1, 2, 3};
  constant_delay(0.25)->add(test_stream, 0, sums);
  EXPECT_THAT(sums, testing::ElementsAre(1.25, 2.25, 3.25));
  const std::vector<double> alone = draws(*exponential_delay(0.5), 3);
  exponential_delay(0.5)->add(test_stream, 0, sums);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(sums[i], 1.25 + i + alone[i]);
}

// Bit by bit, for batches of any length, with far tails and cells that have no polynomial (a very skewed gamma).
TEST(Delays, InstructionSetsAgree) {
  std::vector<Family> all = families();
  all.push_back({"very skewed gamma", gamma_delay(0.05, 2), {}, 0, 0});
  for (const Family& family : all) {
    for (const std::size_t n : {1, 3, 4, 7, 8, 12, 31, 100, 257, 100'000}) {
      std::vector<double> scalar;
      with_each_instruction_set([&](const std::string& name) {
        const std::vector<double> sample = draws(*family.process, n, 2);
        if (scalar.empty()) scalar = sample;
        ASSERT_EQ(sample, scalar) << family.name << ", " << name;
      });
    }
  }
}

TEST(Delays, BatchesAndSingleDrawsAgree) {
  for (const Family& family : families()) {
    const std::vector<double> batch = draws(*family.process, 150, 5);
    for (std::uint32_t i = 150; i-- > 0;) ASSERT_EQ(draws(*family.process, 1, 5 + i)[0], batch[i]) << family.name;
  }
}

}  // namespace
}  // namespace syncopate
