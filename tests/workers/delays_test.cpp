#include "workers/time/delays.hpp"

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
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include "tests/workers/instruction_sets.hpp"
#include "workers/config/settings.hpp"
#include "workers/time/compute_time.hpp"
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

// A family of delays: the process, and its theoretical properties from Boost or from formulas here.
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

// E[min(Z / alpha, beta)^power] by quadrature over the normal score of ln Z up to the bound, plus the mass beyond it.
double bounded_moment(int power) {
  const double end = (std::log(alpha * beta) - mu) / sigma;
  const boost::math::normal standard;
  const auto integrand = [&](double z) { return std::pow(std::exp(mu + sigma * z) / alpha, power) * pdf(standard, z); };
  const double below = boost::math::quadrature::tanh_sinh<double>().integrate(integrand, -12.0, end);
  return below + std::pow(beta, power) * cdf(complement(standard, end));
}

// Sum of length^power up to max_length with the reference code's weights. Unlike the table, adds large lengths first.
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

// Tolerances are four standard errors of the mean, and four of the variance, computed from the sample's fourth moment.
// A correct family would fail with probability 1.3e-4, but the seed is fixed.
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

// Kolmogorov-Smirnov test at the significance level 0.001: D sqrt(n) below 1.9495. The seed is fixed, so the test
// always passes or always fails. It compares the fraction of draws up to each draw, which is exact if the distribution
// function has steps. If the function has no steps, D may be 1/n too small.
TEST(Delays, DrawsFollowTheExactDistributionFunction) {
  constexpr std::size_t n = 50'000;
  for (const Family& family : families()) {
    std::vector<double> sample = draws(*family.process, n, 1000);
    std::ranges::sort(sample);
    double distance = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (i + 1 < n && sample[i + 1] == sample[i]) continue;  // only the last one of equal values is compared
      const double fraction = static_cast<double>(i + 1) / n;
      distance = std::max(distance, std::abs(fraction - family.distribution_function(sample[i])));
    }
    EXPECT_LT(distance * std::sqrt(n), 1.9495) << family.name;
  }
}

// Uniform number i of the stream becomes delay i. Compares each delay with Boost's quantile.
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
  const double expected = 50'000 * (1 - cdf(boost::math::lognormal(mu, sigma), alpha * beta));  // a share of 0.00188
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
  EXPECT_EQ(drift_delay(0, 0.0105)->mean_s(), 0);  // no drift
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

// All instruction sets give the same bits: for batches of all lengths, in far tails, and in cells of the table that
// have no polynomial (a very skewed gamma).
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

using testing::HasSubstr;

struct Read {
  std::shared_ptr<const DelayProcess> delay;
  std::string faults;
};

Read read_delay(const std::string& toml, double base_s = 0.010) {
  SettingsDocument document(parse_toml(toml, "delays.toml"));
  Settings settings = document.root();
  auto delay = make_delay(settings, {base_s});
  return {std::move(delay), document.check().report()};
}

// Each family once, with its mean in its own unit.
struct Example {
  std::string kind;
  std::string keys;
  double mean;
};
const std::vector<Example> examples = {
    {"constant", "value = 3", 3},
    {"uniform", "low = 1\nhigh = 4", 2.5},
    {"normal", "mean = 2\nstandard_deviation = 0.1", 2},
    {"exponential", "mean = 0.7", 0.7},
    {"shifted-exponential", "shift = 0.2\nmean = 0.7", 0.9},
    {"weibull", "shape = 1\nscale = 0.5", 0.5},
    {"pareto", "shape = 3\nminimum = 2", 3},
    {"bernoulli", "probability = 0.25\nvalue = 2", 0.5},
    {"lognormal", "mu = -0.125\nsigma = 0.5", 1},
    {"lognormal", "mu = -0.125\nsigma = 0.5\nscale = 3", 3},
    {"drift", "per_step = 0.5\nmaximum = 4", 4},
    {"gamma", "shape = 4\nscale = 0.5", 2},
    {"bounded-lognormal", "", 0.5},
    {"bounded-lognormal", "form = \"table\"\nscale = 2", 2},
    {"bounded-lognormal", "form = \"formula\"", 0.495904},  // from the golden table, six digits
    {"bounded-lognormal", "form = \"formula\"\nmu = 4\nsigma = 1\nalpha = 180.03426260104363\nbeta = 5.5\nscale = 2",
     2 * 0.495904},
};

TEST(DelayRegistry, ExamplesCoverEveryRow) {
  std::set<std::string_view> rows, covered;
  for (const DelayRow& row : delays()) {
    EXPECT_TRUE(rows.insert(row.name).second) << row.name << " stands twice";
    EXPECT_FALSE(row.sentence.empty());
  }
  for (const Example& example : examples) covered.insert(example.kind);
  covered.insert({"histogram", "trace"});  // they have their own tests: their unit is that of the file
  EXPECT_EQ(rows, covered);
}

TEST(DelayRegistry, FamiliesReadTheirKeysInSecondsOrMicroBatches) {
  for (const auto& [kind, keys, mean] : examples) {
    const std::string entry = "kind = \"" + kind + "\"\n" + keys + "\n";
    for (const auto& [unit, unit_s] :
         {std::pair{"", 1.0}, {"unit = \"seconds\"", 1.0}, {"unit = \"micro_batch\"", 0.02}}) {
      const Read read = read_delay(entry + unit, 0.02);
      EXPECT_EQ(read.faults, "") << entry;
      EXPECT_NEAR(read.delay->mean_s(), unit_s * mean, 1e-6 * unit_s * mean + 1e-15) << entry << unit;
    }
  }
}

TEST(DelayRegistry, BadParametersAreFaultsAtTheirPlace) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"kind = \"constant\"\nvalue = -1", "delays.toml:2:"},
      {"kind = \"constant\"\nvalue = inf", "value"},
      {"kind = \"constant\"\nvalue = nan", "value"},
      {"kind = \"constant\"", "value"},
      {"kind = \"uniform\"\nlow = 2\nhigh = 1", "must be at least `low`"},
      {"kind = \"uniform\"\nlow = -2\nhigh = 1", "low"},
      {"kind = \"normal\"\nmean = 1\nstandard_deviation = -0.5", "standard_deviation"},
      {"kind = \"exponential\"\nmean = -0.5", "mean"},
      {"kind = \"gamma\"\nshape = 0\nscale = 1", "shape"},
      {"kind = \"gamma\"\nshape = 1\nscale = -1", "scale"},
      {"kind = \"shifted-exponential\"\nmean = 1", "shift"},
      {"kind = \"weibull\"\nshape = 0\nscale = 1", "shape"},
      {"kind = \"pareto\"\nshape = 0.01\nminimum = 1", "shape"},
      {"kind = \"pareto\"\nshape = 2\nminimum = -1", "minimum"},
      {"kind = \"bernoulli\"\nprobability = 1.5\nvalue = 1", "probability"},
      {"kind = \"lognormal\"\nmu = 0\nsigma = 0", "sigma"},
      {"kind = \"lognormal\"\nsigma = 1", "mu"},
      {"kind = \"drift\"\nper_step = -1\nmaximum = 1", "per_step"},
      {"kind = \"drift\"\nper_step = 1", "maximum"},
      {"kind = \"drift\"\nper_step = 1\nmaximum = 2\nscope = \"worker\"", "changes from step to step"},
      {"kind = \"constant\"\nvalue = 1\nscope = \"server\"", "micro-batch"},
      {"kind = \"constant\"\nvalue = 1\ngroup_size = 0", "delays.toml:3:"},
      {"kind = \"constant\"\nvalue = 1\nworkers = []", "at least one worker"},
      {"kind = \"constant\"\nvalue = 1\nworkers = [1, 0, 1]",
       "must name each worker only once; found 1 more than once"},
      {"kind = \"constant\"\nvalue = 1\nworkers = [-1]", "workers"},
      {"kind = \"constant\"\nvalue = 1\nbursts = { mean_on_steps = 0.5, mean_off_steps = 2 }", "mean_on_steps"},
      {"kind = \"constant\"\nvalue = 1\nbursts = { mean_on_steps = 2 }", "mean_off_steps"},
      {"kind = \"constant\"\nvalue = 1\nbursts = 3", "bursts"},
      {"kind = \"bounded-lognormal\"\nform = \"formula\"\nsigma = 0", "sigma"},
      {"kind = \"bounded-lognormal\"\nform = \"formula\"\nalpha = 0", "alpha"},
      {"kind = \"bounded-lognormal\"\nform = \"formula\"\nbeta = -1", "beta"},
      {"kind = \"bounded-lognormal\"\nscale = -1", "scale"},
      {"kind = \"bounded-lognormal\"\nmu = 4", "mu"},  // a key of the other form
      {"kind = \"bounded-lognormal\"\nform = \"tabel\"", "table"},
      {"kind = \"exponental\"", "exponential"},
      {"mean = 1", "kind"},
      {"kind = \"constant\"\nvalue = 1\nunit = \"hours\"", "unit"},
      {"kind = \"constant\"\nvalue = 1\nvalu = 2", "valu"},
  };
  for (const auto& [entry, expected] : bad) {
    const Read read = read_delay(entry);
    EXPECT_THAT(read.faults, HasSubstr(expected)) << entry;
    EXPECT_NE(read.delay, nullptr) << entry;
  }
}

using testing::Each;
using Added = std::vector<double>;

Added added(const DelayProcess& process, int worker, Step step, std::size_t n = 4, std::uint32_t first = 0,
            std::uint64_t seed = 7) {
  Added sums(n, 0.0);
  process.add({.seed = seed, .stream = 2, .worker = Rank{worker}, .step = step}, first, sums);
  return sums;
}

TEST(ScopedDelay, ScopeStepIsOneDrawBeforeTheFirstMicroBatch) {
  const auto plain = exponential_delay(2);
  const auto scoped = scoped_delay(plain, {.scope = DelayScope::step});
  for (const int worker : {0, 3})
    for (const Step step : {0, 1, 50}) {
      const double draw = added(*plain, worker, step)[0];
      EXPECT_EQ(added(*scoped, worker, step), (Added{draw, 0, 0, 0}));
      EXPECT_EQ(added(*scoped, worker, step, 2, 1), (Added{0, 0}));
    }
  EXPECT_NE(added(*scoped, 0, 0), added(*scoped, 0, 1));
  EXPECT_NE(added(*scoped, 0, 0), added(*scoped, 1, 0));
}

// A step's first draw applies to all of its micro-batches, even if they are requested in several pieces.
TEST(ScopedDelay, ScopeWholeStepIsOneDrawOnEachMicroBatch) {
  const auto plain = exponential_delay(2);
  const auto scoped = scoped_delay(plain, {.scope = DelayScope::whole_step});
  for (const int worker : {0, 3})
    for (const Step step : {0, 1, 50}) {
      const double draw = added(*plain, worker, step)[0];
      EXPECT_THAT(added(*scoped, worker, step), Each(draw));
      EXPECT_THAT(added(*scoped, worker, step, 2, 1), Each(draw));
    }
  EXPECT_NE(added(*scoped, 0, 0), added(*scoped, 0, 1));
}

TEST(ScopedDelay, ScopeWorkerIsOneDrawForTheRunOnEachMicroBatch) {
  const auto scoped = scoped_delay(exponential_delay(2), {.scope = DelayScope::worker});
  std::vector<double> draws;
  for (int worker = 0; worker < 20'000; ++worker) {
    draws.push_back(added(*scoped, worker, 0)[0]);
    if (worker < 100) {
      EXPECT_THAT(added(*scoped, worker, 99, 3, 5), Each(draws.back()));
    }
  }
  EXPECT_NE(added(*scoped, 0, 0, 4, 0, 8), added(*scoped, 0, 0));  // with another seed
  double mean = 0;
  for (const double draw : draws) mean += draw / 20'000;
  EXPECT_NEAR(mean, 2, 4 * 2 / std::sqrt(20'000));  // four standard errors of an exponential's mean
  // The worker's draw differs from the one that a micro-batch of step 0 would get.
  EXPECT_NE(added(*exponential_delay(2), 0, 0)[0], draws[0]);
}

TEST(ScopedDelay, GroupsOfConsecutiveRanksShareTheirDraws) {
  const auto plain = exponential_delay(2);
  for (const DelayScope scope : {DelayScope::micro_batch, DelayScope::step, DelayScope::worker}) {
    const auto racks = scoped_delay(plain, {.scope = scope, .group_size = 3});
    for (const Step step : {0, 8}) {
      EXPECT_EQ(added(*racks, 0, step), added(*racks, 2, step));
      EXPECT_EQ(added(*racks, 3, step), added(*racks, 5, step));
      EXPECT_NE(added(*racks, 2, step), added(*racks, 3, step));
    }
  }
  const auto racks = scoped_delay(plain, {.group_size = 3});
  EXPECT_EQ(added(*racks, 7, 1), added(*plain, 2, 1));
}

TEST(ScopedDelay, ConcernsTheWorkersThatAreNamedAlone) {
  const auto server = scoped_delay(constant_delay(2), {.group_size = 2, .workers = {4, 1}});
  for (int worker = 0; worker < 8; ++worker) {
    const bool concerned = worker == 1 || worker == 4;
    EXPECT_THAT(added(*server, worker, 3), Each(concerned ? 2.0 : 0.0));
    EXPECT_EQ(server->shortest_s(Rank{worker}), concerned ? 2.0 : 0.0);
    EXPECT_EQ(server->step_law({.worker = Rank{worker}}, 5).mean_s, concerned ? 10 : 0);
  }
}

TEST(ScopedDelay, WhoIsNotNamedHasShorterMicroBatches) {
  const ComputeTime compute_time(7, 1.5, {}, {scoped_delay(constant_delay(2), {.workers = {1}}), constant_delay(0.25)});
  EXPECT_DOUBLE_EQ(compute_time.shortest(Rank{0}), 1.75);
  EXPECT_DOUBLE_EQ(compute_time.shortest(Rank{1}), 3.75);
}

TEST(ScopedDelay, WithoutKeysIsTheProcessItself) {
  const auto plain = exponential_delay(2);
  EXPECT_EQ(scoped_delay(plain, {}), plain);
}

// Mean lengths and the share of on-steps over 400,000 steps, within four standard errors. n runs of geometric length
// with mean m have a mean with deviation sqrt(m (m - 1) / n). Consecutive states have the correlation r = 1 - 1 /
// mean_on - 1 / mean_off, so the share p has the variance p (1 - p) (1 + r) / (1 - r) / steps.
TEST(Bursts, HaveTheStationaryShareAndTheMeanLengths) {
  constexpr int steps = 400'000;
  for (const auto& [mean_on, mean_off] : {std::pair{5.0, 20.0}, {30.0, 10.0}, {1.25, 4.0}, {1.2, 1.6}, {1.0, 3.0}}) {
    const Bursts bursts(mean_on, mean_off, 1);
    const double p = mean_on / (mean_on + mean_off), r = 1 - 1 / mean_on - 1 / mean_off;
    EXPECT_NEAR(bursts.share(), p, 1e-12);
    int on_steps = 0, on_runs = 0, off_runs = 0;
    bool before = false;
    for (int step = 0; step < steps; ++step) {
      const bool on = bursts.is_on({.seed = 5, .worker = Rank{0}, .step = Step{step}});
      on_steps += on;
      if (step == 0 || on != before) ++(on ? on_runs : off_runs);
      before = on;
    }
    EXPECT_NEAR(static_cast<double>(on_steps) / steps, p, 4 * std::sqrt(p * (1 - p) * (1 + r) / (1 - r) / steps));
    const double on_length = static_cast<double>(on_steps) / on_runs;
    const double off_length = static_cast<double>(steps - on_steps) / off_runs;
    EXPECT_NEAR(on_length, mean_on, 4 * std::sqrt(mean_on * (mean_on - 1) / on_runs) + 1e-9);
    EXPECT_NEAR(off_length, mean_off, 4 * std::sqrt(mean_off * (mean_off - 1) / off_runs) + 1e-9);
  }
}

// In every step, including the first, the stationary share of workers is on. Workers switch independently.
TEST(Bursts, AreStationaryFromTheFirstStepOn) {
  constexpr int workers = 20'000;
  const Bursts bursts(8, 24, workers);
  for (const int step : {0, 1, 40}) {
    int on = 0;
    for (int worker = 0; worker < workers; ++worker)
      on += bursts.is_on({.seed = 6, .worker = Rank{worker}, .step = Step{step}});
    EXPECT_NEAR(on / static_cast<double>(workers), 0.25, 4 * std::sqrt(0.25 * 0.75 / workers)) << step;
  }
}

// Compares with the chain computed forward from step 0 with the transition probabilities alone.
TEST(Bursts, ArePureFunctionsOfWorkerAndStepInAnyOrder) {
  constexpr int workers = 5, steps = 300;
  for (const auto& [mean_on, mean_off] : {std::pair{6.0, 18.0}, {1.25, 1.6}, {1.0, 1.0}, {1000.0, 3000.0}}) {
    std::vector<std::vector<bool>> forward(workers);
    for (int worker = 0; worker < workers; ++worker) {
      bool on = false;
      for (int step = 0; step < steps; ++step) {
        const double u = RandomStream{.seed = 9, .worker = Rank{worker}, .step = Step{step}}.uniform(0);
        on = u < (step == 0 ? mean_on / (mean_on + mean_off) : on ? 1 - 1 / mean_on : 1 / mean_off);
        forward[worker].push_back(on);
      }
    }
    const Bursts remembers(mean_on, mean_off, workers), forgets(mean_on, mean_off, 0);
    for (int i = 0; i < workers * steps; ++i) {
      const int shuffled = i * 677 % (workers * steps);  // 677 is prime, so each occurs once
      const int worker = shuffled % workers, step = shuffled / workers;
      const RandomStream stream{.seed = 9, .worker = Rank{worker}, .step = Step{step}};
      ASSERT_EQ(remembers.is_on(stream), forward[worker][step]) << worker << " " << step;
      ASSERT_EQ(forgets.is_on(stream), forward[worker][step]) << worker << " " << step;
      ASSERT_EQ(remembers.is_on(stream), forward[worker][step]);
    }
  }
}

TEST(ScopedDelay, CountsInBurstsAlone) {
  const auto plain = exponential_delay(2);
  const DelayReach in_bursts{.bursts = BurstLengths{3, 5}, .cluster_size = 4};
  const auto bursty = scoped_delay(plain, in_bursts);
  int on = 0;
  for (int step = 0; step < 400; ++step) {
    const Added here = added(*bursty, 1, step);
    const bool counts = here[0] > 0;
    EXPECT_EQ(here, counts ? added(*plain, 1, step) : Added(4, 0.0));
    on += counts;
  }
  EXPECT_GT(on, 100);
  EXPECT_LT(on, 200);
  DelayReach of_racks = in_bursts;
  of_racks.group_size = 2;
  const auto racks = scoped_delay(plain, of_racks);
  for (int step = 0; step < 100; ++step) EXPECT_EQ(added(*racks, 2, step), added(*racks, 3, step));
}

// Means and variances of a worker's step time over a run, compared with the law. The mean must be within four standard
// errors, and the variance within five per cent. For 40,000 normal steps the variance's standard error is below one per
// cent.
TEST(ScopedDelay, LawOfAStepIsThatOfTheSteps) {
  const auto draw = normal_delay(0.5, 0.2);
  constexpr int steps = 40'000, micro_batches = 3;
  const std::vector<DelayReach> reaches = {
      {},
      {.scope = DelayScope::step},
      {.scope = DelayScope::whole_step},
      {.scope = DelayScope::worker},
      {.group_size = 2},
      {.workers = {1}},
      {.workers = {0}},
      {.bursts = BurstLengths{2, 2}, .cluster_size = 2},
      {.scope = DelayScope::step, .bursts = BurstLengths{2, 4}, .cluster_size = 2},
      {.scope = DelayScope::whole_step, .bursts = BurstLengths{2, 2}, .cluster_size = 2},
      {.scope = DelayScope::worker, .bursts = BurstLengths{2, 2}, .cluster_size = 2},
  };
  for (std::size_t i = 0; i < reaches.size(); ++i) {
    const ComputeTime time(3, 0.25, {1, 2}, {scoped_delay(draw, reaches[i])});
    const StepLaw law = time.step_law(Rank{1}, micro_batches);
    double sum = 0, squares = 0;
    std::vector<Duration> durations(micro_batches);
    for (int step = 0; step < steps; ++step) {
      time.durations(Rank{1}, Step{step}, 0, durations);
      double total = 0;
      for (const Duration duration : durations) total += to_seconds(duration);
      sum += total, squares += total * total;
    }
    const double mean = sum / steps, variance = squares / steps - mean * mean;
    // Steps in bursts of mean lengths 2 (on) and 4 (off) have the correlation r = 1/4. It multiplies the variance of
    // the mean by (1 + r) / (1 - r) = 1.67.
    EXPECT_NEAR(mean, law.mean_s, 4 * std::sqrt(1.67 * law.variance_s2 / steps) + 1e-6) << i;
    EXPECT_NEAR(variance, law.variance_s2, 0.05 * law.variance_s2 + 1e-9) << i;
  }
}

TEST(ScopedDelay, ShortestMicroBatchIsTheInfimumOverAll) {
  const auto shortest = [](std::shared_ptr<const DelayProcess> delay) {
    return ComputeTime(1, 0.25, {2}, {std::move(delay)}).shortest(Rank{0});
  };
  EXPECT_DOUBLE_EQ(shortest(constant_delay(1)), 1.5);
  EXPECT_DOUBLE_EQ(shortest(exponential_delay(1)), 0.5);
  EXPECT_DOUBLE_EQ(shortest(shifted_exponential_delay(3, 1)), 3.5);
  EXPECT_DOUBLE_EQ(shortest(scoped_delay(constant_delay(1), {.scope = DelayScope::step})), 0.5);
  EXPECT_DOUBLE_EQ(shortest(scoped_delay(constant_delay(1), {.scope = DelayScope::worker})), 1.5);
  EXPECT_DOUBLE_EQ(shortest(scoped_delay(constant_delay(1), {.bursts = BurstLengths{2, 2}})), 0.5);
  EXPECT_DOUBLE_EQ(shortest(drift_delay(1, 5)), 0.5);
  EXPECT_DOUBLE_EQ(shortest(normal_delay(0, 0.1)), 1e-9);  // no micro-batch takes less than a nanosecond
}

class Recorded final : public DelayProcess {
 public:
  void add(const RandomStream&, std::uint32_t, std::span<double>) const override {}
  double mean_s() const override { return 0; }
  bool can_run_out() const override { return true; }
};

TEST(ScopedDelay, CanRunOutIfItsProcessCan) {
  EXPECT_TRUE(scoped_delay(std::make_shared<Recorded>(), {.group_size = 3})->can_run_out());
  EXPECT_FALSE(scoped_delay(exponential_delay(1), {.group_size = 3})->can_run_out());
}

// A delay whose distribution differs between workers, as that of a trace does.
class SlowerByNumber final : public DelayProcess {
 public:
  void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
    for (double& sum_s : added_s) sum_s += stream.worker.value;
  }
  double mean_s() const override { return 1; }
  StepLaw step_law(const RandomStream& stream, int micro_batches) const override {
    return {1.0 * micro_batches * stream.worker.value, 0};
  }
};

TEST(ScopedDelay, OfAGroupHasTheLawOfTheGroupsNumber) {
  const auto racks = scoped_delay(std::make_shared<SlowerByNumber>(), {.group_size = 3});
  const auto per_step = scoped_delay(std::make_shared<SlowerByNumber>(), {.scope = DelayScope::step, .group_size = 3});
  for (int worker = 0; worker < 9; ++worker) {
    EXPECT_THAT(added(*racks, worker, 5), Each(worker / 3));
    EXPECT_EQ(racks->step_law({.worker = Rank{worker}}, 4).mean_s, 4 * (worker / 3));
    EXPECT_EQ(per_step->step_law({.worker = Rank{worker}}, 4).mean_s, worker / 3);
  }
}

TEST(ScopedDelay, ConcernsOnlyWorkersThatThereAre) {
  const auto faults = [](const std::string& workers, int of_cluster) {
    SettingsDocument document(parse_toml("kind = \"constant\"\nvalue = 1\nworkers = " + workers, "delays.toml"));
    Settings settings = document.root();
    static_cast<void>(make_delay(settings, {0.010, of_cluster}));
    return document.check().report();
  };
  EXPECT_EQ(faults("[0, 7]", 8), "");
  EXPECT_THAT(faults("[0, 8]", 8), testing::HasSubstr("workers = 8; each element must be an integer from 0 to 7"));
  EXPECT_EQ(faults("[8]", 0), "");  // the number of workers is unknown
}

TEST(ScopedDelay, KeysOfAnEntryMakeItsReach) {
  const auto read = [](const std::string& keys) {
    SettingsDocument document(parse_toml("kind = \"exponential\"\nmean = 2\n" + keys, "delays.toml"));
    Settings settings = document.root();
    auto delay = make_delay(settings, {0.010, 8});
    EXPECT_EQ(document.check().report(), "") << keys;
    return std::pair{delay, write_toml(document.resolved())};
  };
  const auto plain = exponential_delay(2);
  const auto [step, step_text] = read("scope = \"step\"");
  EXPECT_EQ(added(*step, 1, 2), (Added{added(*plain, 1, 2)[0], 0, 0, 0}));
  EXPECT_THAT(step_text, testing::HasSubstr("scope = \"step\""));
  const auto [rack, rack_text] = read("group_size = 4\nworkers = [4, 5, 6, 7]");
  EXPECT_EQ(added(*rack, 6, 2), added(*plain, 1, 2));
  EXPECT_THAT(added(*rack, 3, 2), Each(0.0));
  const auto [bursty, bursty_text] = read("bursts = { mean_on_steps = 2, mean_off_steps = 6 }");
  EXPECT_DOUBLE_EQ(bursty->mean_s(), 0.5);
  // Keys that are left out stay out of the resolved configuration, so the run stays the same.
  const auto [unscoped, text] = read("");
  EXPECT_EQ(added(*unscoped, 6, 2), added(*plain, 6, 2));
  EXPECT_EQ(text, "kind = \"exponential\"\nunit = \"seconds\"\nmean = 2.0\n");
}

}  // namespace
}  // namespace syncopate
