// The penalty of EDiT on norms alone: closed forms, and a second implementation that keeps everything.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "algorithms/local_sgd/edit.hpp"
#include "workers/base/random.hpp"

namespace syncopate {
namespace {

constexpr double infinity = PenaltyOptions::infinity, not_a_number = std::numeric_limits<double>::quiet_NaN();

// Of n norms of 1, with q = 1 - a: mean 1 - q^n, variance q^(n + 1) (1 - q^n).
TEST(NormStatistics, OfConstantNormsAreAClosedForm) {
  for (const double a : {0.02, 0.3}) {
    const PenaltyOptions options{.outlier_warmup = 10, .outlier_smoothing = a};
    NormStatistics statistics;
    for (int n = 1; n <= 200; ++n) {
      statistics.take_in(5, options);
      const double left = std::pow(1 - a, n);
      EXPECT_NEAR(statistics.mean(), 5 * (1 - left), 1e-12);
      EXPECT_NEAR(statistics.variance(), 25 * (1 - a) * left * (1 - left), 1e-12) << n;
    }
  }
}

// After W = 10 of them z is 0 nine times and then below 3, so that the threshold is 3 deviations.
TEST(NormStatistics, ANormIsAnOutlierFromThreeDeviationsAboveTheMeanOn) {
  const PenaltyOptions options{.outlier_warmup = 10};
  NormStatistics statistics;
  for (int n = 0; n < 9; ++n) statistics.take_in(5, options);
  EXPECT_FALSE(statistics.is_outlier(1e9, options)) << "the warm-up has none";
  statistics.take_in(5, options);
  const double left = std::pow(0.98, 10), at = 5 * (1 - left + 3 * std::sqrt(0.98 * left * (1 - left)));
  EXPECT_FALSE(statistics.is_outlier(at * (1 - 1e-9), options));
  EXPECT_TRUE(statistics.is_outlier(at * (1 + 1e-9), options));
  EXPECT_FALSE(statistics.is_outlier(0, options)) << "short ones are welcome";
  EXPECT_FALSE(statistics.is_outlier(1e9, {.outlier_factor = infinity, .outlier_warmup = 10}));
}

// The same, as a list of all norms that were taken in.
struct ListedNorms {
  std::vector<double> norms{};

  bool is_outlier(double norm, double factor, int warmup, double a) const {
    if (std::ssize(norms) < warmup) return false;
    double mean = 0, variance = 0;
    std::vector<double> z_scores;
    for (std::size_t i = 0; i < norms.size(); ++i) {
      const double old = mean;
      mean = (1 - a) * mean + a * norms[i];
      variance = (1 - a) * variance + a * (norms[i] - mean) * (norms[i] - mean);
      EXPECT_NEAR((norms[i] - mean), (1 - a) * (norms[i] - old), 1e-12);
      z_scores.push_back(static_cast<int>(i) + 1 < warmup ? 0 : (norms[i] - mean) / std::sqrt(variance));
    }
    const std::vector<double> last(z_scores.end() - warmup, z_scores.end());
    const double z_mean = std::accumulate(last.begin(), last.end(), 0.0) / warmup;
    double squares = 0;
    for (const double z : last) squares += (z - z_mean) * (z - z_mean);
    return (norm - mean) / std::sqrt(variance) > factor * std::max(1.0, std::sqrt(squares / (warmup - 1)));
  }
};

TEST(NormStatistics, OfNormsWithLongOnesAmongThemAreThoseOfAList) {
  const PenaltyOptions options{.outlier_factor = 1.6, .outlier_warmup = 6, .outlier_smoothing = 0.2};
  NormStatistics statistics;
  ListedNorms listed;
  int outliers = 0;
  for (int n = 0; n < 300; ++n) {
    const RandomStream stream{.seed = 7, .purpose = Purpose::algorithm, .step = Step{n}};
    const double norm = 1 + stream.uniform(0) + (stream.uniform(1) < 0.3 ? 2 + stream.uniform(2) : 0);
    const bool is_outlier = statistics.is_outlier(norm, options);
    ASSERT_EQ(is_outlier, listed.is_outlier(norm, 1.6, 6, 0.2)) << n;
    outliers += is_outlier ? 1 : 0;
    if (is_outlier) continue;
    statistics.take_in(norm, options);
    listed.norms.push_back(norm);
  }
  EXPECT_GT(outliers, 20);
  EXPECT_LT(outliers, 250);
}

// The z of the W-th constant norm is sqrt(q^(W - 1) / (1 - q^W)): with a = 0.02 above 3 up to W = 5.
TEST(Penalty, AWarmUpMustBeSoLongThatConstantNormsAreNoOutliers) {
  EXPECT_EQ(shortest_warmup({}), 6);
  EXPECT_EQ(shortest_warmup({.outlier_factor = infinity}), 1);
  for (const double a : {0.02, 0.1, 0.5})
    for (const double factor : {0.5, 1.0, 3.0, 10.0}) {
      PenaltyOptions options{.outlier_factor = factor, .outlier_smoothing = a};
      options.outlier_warmup = shortest_warmup(options);
      Penalty penalty;
      for (int n = 0; n < options.outlier_warmup + 200; ++n) {
        penalty = penalise(penalty.statistics, std::vector{5.0}, {}, 1, options);
        ASSERT_EQ(penalty.factors[0], 1) << a << " " << factor << " " << n;
      }
    }
  // With half of that they are, for ever.
  const PenaltyOptions options{.outlier_warmup = 3};
  Penalty penalty;
  for (int n = 0; n < 50; ++n) penalty = penalise(penalty.statistics, std::vector{5.0}, {}, 1, options);
  EXPECT_TRUE(penalty.rolled_back[0]);
}

// Where an outlier's norm spoils the statistics, a tenfold norm goes unseen for about a thousand rounds.
TEST(Penalty, AnOutlierLeavesTheStatisticsAsTheyWere) {
  const PenaltyOptions options{.outlier_warmup = 10};
  Penalty penalty;
  const auto next = [&](double norm) {
    penalty = penalise(penalty.statistics, std::vector{norm, 5.0}, {}, 1, options);
  };
  for (int n = 0; n < 50; ++n) next(5);
  const double mean = penalty.statistics[0].mean();
  for (const double norm : {1e6, infinity, not_a_number, 50.0}) {
    next(norm);
    EXPECT_EQ(penalty.factors, (std::vector{0.0, 2.0})) << norm;
    EXPECT_EQ(penalty.statistics[0].mean(), mean);
    EXPECT_FALSE(penalty.rolled_back[0]);
  }
  next(5);
  EXPECT_EQ(penalty.factors, (std::vector{1.0, 1.0}));
  EXPECT_GT(penalty.statistics[0].mean(), mean);
}

TEST(Penalty, AModuleIsRolledBackWhereAllAreOutliers) {
  const PenaltyOptions options{.outlier_warmup = 10};
  Penalty penalty;
  const std::vector<double> usual = {5, 1, 5, 1};  // two workers, two modules
  for (int n = 0; n < 20; ++n) penalty = penalise(penalty.statistics, usual, {}, 2, options);
  penalty = penalise(penalty.statistics, std::vector{500.0, 1.0, 500.0, 100.0}, {}, 2, options);
  EXPECT_EQ(penalty.rolled_back, (std::vector{true, false}));
  EXPECT_EQ(penalty.factors, (std::vector{0.0, 2.0, 0.0, 0.0}));
  EXPECT_EQ(penalty.factors_of(Rank{1})[0], 0);
}

// Nothing of such a round is worth keeping, and a run that returned to its beginning for ever would seem to be finished.
TEST(Penalty, AModuleInWhichNoNormIsFiniteIsNotRolledBack) {
  for (const double norm : {infinity, not_a_number}) {
    const Penalty first = penalise({}, std::vector{norm, 1.0, infinity, norm}, {}, 2, {});
    EXPECT_EQ(first.rolled_back, (std::vector{false, false}));
    EXPECT_EQ(first.factors, (std::vector{1.0, 2.0, 1.0, 0.0})) << "the second module has one that is";
  }
}

TEST(Penalty, WorkersWeighByTheSoftmaxOfTheirNorms) {
  const std::vector<double> norms = {0.5, 2, 1.25, 3};
  for (const double temperature : {0.1, 1.0, 7.0}) {
    const Penalty penalty = penalise({}, norms, {}, 1, {.temperature = temperature});
    double sum = 0;
    for (const double norm : norms) sum += std::exp(-norm / temperature);
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(penalty.factors[i], 4 * std::exp(-norms[i] / temperature) / sum, 1e-12);
  }
  // Where their differences are far above T, the shortest takes all; no norm is too long for that.
  EXPECT_EQ(penalise({}, std::vector{1e300, 2e300, 4e300, 2e300}, {}, 1, {}).factors,
            (std::vector{4.0, 0.0, 0.0, 0.0}));
}

TEST(Penalty, EqualNormsAndAnInfiniteTemperatureGiveExactlyTheMean) {
  for (int workers = 1; workers < 200; ++workers) {
    std::vector<double> norms(static_cast<std::size_t>(workers), 0.3);
    const std::vector ones(norms.size(), 1.0);
    EXPECT_EQ(penalise({}, norms, {}, 1, {}).factors, ones);
    std::iota(norms.begin(), norms.end(), 0.1);
    EXPECT_EQ(penalise({}, norms, {}, 1, {.temperature = infinity}).factors, ones);
  }
}

// (1 - r) w + r steps / all steps.
TEST(Penalty, APartOfTheWeightsMayGoBySteps) {
  const std::vector<double> norms = {1, 1, 1}, steps = {4, 3, 1};
  const Penalty penalty = penalise({}, norms, steps, 1, {.step_share = 0.4});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(penalty.factors[i], 3 * (0.6 / 3 + 0.4 * steps[i] / 8), 1e-12);
  EXPECT_EQ(penalise({}, norms, std::vector{0.0, 0.0, 0.0}, 1, {.step_share = 0.4}).factors, std::vector(3, 1.0));
  // What an outlier's steps would weigh is nobody's.
  const std::vector<double> one_lost = {1, not_a_number, 1};
  const Penalty without = penalise({}, one_lost, steps, 1, {.step_share = 0.4});
  EXPECT_NEAR(without.factors[0], 3 * (0.6 / 2 + 0.4 * 4 / 8), 1e-12);
  EXPECT_EQ(without.factors[1], 0);
}

TEST(Penalty, WhereNobodyMayBeAnOutlierWhatIsNoNumberShows) {
  const PenaltyOptions options{.outlier_factor = infinity};
  for (const double norm : {infinity, not_a_number}) {
    EXPECT_EQ(penalise({}, std::vector{1.0, norm, 3.0}, {}, 1, options).factors, std::vector(3, 1.0));
    EXPECT_EQ(clip_factor(norm, 10), 1);
  }
}

TEST(Penalty, ASumIsClippedToItsLongestNorm) {
  EXPECT_EQ(clip_factor(3, 10), 1);
  EXPECT_EQ(clip_factor(0, 10), 1);
  EXPECT_DOUBLE_EQ(clip_factor(25, 10), 10 / (25 + 1e-6));
  EXPECT_EQ(clip_factor(1e300, infinity), 1);
}

}  // namespace
}  // namespace syncopate
