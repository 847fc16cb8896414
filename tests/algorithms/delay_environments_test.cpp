// DropCompute under the delay environments that the project's fact sheet tabulates (sections 3, 4.1 and 4.2), an
// independent computation in numpy. T^c and all times in units of a micro-batch without delay.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/synchronous/drop_threshold.hpp"
#include "workers/base/random.hpp"
#include "workers/theory/order_statistics.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

// Times of 1 + delay, [worker][step][micro-batch].
std::vector<double> draw(const DelayProcess& delay, int workers, int steps, int micro_batches) {
  std::vector<double> times(static_cast<std::size_t>(workers * steps * micro_batches), 1.0);
  auto at = times.begin();
  for (int n = 0; n < workers; ++n)
    for (Step i{}; i < steps; ++i, at += micro_batches)
      delay.add({11, Purpose::delay, 0, Rank{n}, i}, 0, {&*at, static_cast<std::size_t>(micro_batches)});
  return times;
}

struct Measured {
  double slowest = 0;  // E[T]
  double ratio = 0;    // E[T] / E[T_n]
  ThresholdEffect best;
};

Measured measure(const std::vector<double>& times, int workers, int steps, int micro_batches, double serial) {
  Measured result;
  double mean = 0;
  for (int i = 0; i < steps; ++i) {
    double slowest = 0;
    for (int n = 0; n < workers; ++n) {
      const auto* const first = times.data() + (static_cast<std::ptrdiff_t>(n) * steps + i) * micro_batches;
      const double sum = std::accumulate(first, first + micro_batches, 0.0);
      slowest = std::max(slowest, sum);
      mean += sum / workers / steps;
    }
    result.slowest += slowest / steps;
  }
  result.ratio = result.slowest / mean;
  result.best = search_threshold({times, workers, steps, micro_batches}, serial, SpeedupForm::effective);
  return result;
}

// By inverse distribution function, for families that the registry need not have.
class ByQuantile : public DelayProcess {
 public:
  explicit ByQuantile(std::function<double(double)> quantile) : quantile_(std::move(quantile)) {}
  void add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const override {
    for (double& added : added_s) added += quantile_(stream.uniform(first++));
  }
  double mean_s() const override { return 0; }

 private:
  std::function<double(double)> quantile_;
};

struct Family {
  const char* name;
  std::shared_ptr<const DelayProcess> delay;
  // E[T] / E[T_n] and the best S_eff for 12, 64 and 200 workers; the sheet gives +- 0.005 from 600 iterations.
  double ratio[3];
  double speedup[3];
};

std::vector<Family> families() {
  const double variance = 0.3375;
  const double sigma = std::sqrt(std::log(1 + variance / 0.25)), mu = std::log(0.5) - sigma * sigma / 2;
  const auto lognormal = [=](double u) { return std::exp(mu + sigma * quantile(boost::math::normal(), u)); };
  return {
      {"constant", constant_delay(0.5), {1, 1, 1}, {1, 1, 1}},
      {"normal", normal_delay(0.5, std::sqrt(variance)), {1.181, 1.262, 1.307}, {1.111, 1.185, 1.226}},
      {"Bernoulli",
       std::make_shared<ByQuantile>([](double u) { return u < 0.4255 ? 1.175 : 0.0; }),
       {1.183, 1.265, 1.302},
       {1.132, 1.206, 1.239}},
      {"exponential", exponential_delay(0.5), {1.173, 1.269, 1.325}, {1.110, 1.198, 1.248}},
      {"gamma", gamma_delay(0.25 / variance, variance / 0.5), {1.203, 1.318, 1.394}, {1.135, 1.241, 1.310}},
      {"log-normal", std::make_shared<ByQuantile>(lognormal), {1.215, 1.381, 1.506}, {1.150, 1.301, 1.415}},
      {"formula", bounded_lognormal_delay({}, 1.0), {1.221, 1.361, 1.455}, {1.153, 1.282, 1.368}},
      {"table", tabulated_lognormal_delay(0.5), {1.209, 1.342, 1.414}, {1.142, 1.264, 1.330}},
      {"uniform", uniform_delay(0, 1), {1.091, 1.129, 1.148}, {1.039, 1.072, 1.090}},
  };
}

// Our own 400 steps have about the sheet's error, which comes on top of it: standard deviation of a step's T over
// sqrt(400) and E[T_n], at most 0.005 (log-normal); three of the two together.
TEST(DelayEnvironments, EveryFamilysSlowdownAndBestSpeedUp) {
  constexpr int steps = 400, micro_batches = 12;
  constexpr int sizes[] = {12, 64, 200};
  constexpr double error = 3 * 0.007;
  for (const Family& family : families())
    for (int k = 0; k < 3; ++k) {
      const Measured found =
          measure(draw(*family.delay, sizes[k], steps, micro_batches), sizes[k], steps, micro_batches, 0.9);
      SCOPED_TRACE(fmt::format("{} on {} workers", family.name, sizes[k]));
      EXPECT_NEAR(found.ratio, family.ratio[k], error);
      EXPECT_NEAR(found.best.effective_speedup, family.speedup[k], error);
    }
}

// Section 4.2: E[T], and the best threshold with its S_eff and drop rate. The sheet's Monte-Carlo error is about 1 %
// from 1,024 workers on; ours is a deviation of T of 1.1 to 1.5 over sqrt(steps), 0.2 to 0.5 %. The optimum is flat:
// thresholds within 0.3 of it, and drop rates within 2.5 percentage points, are equally good.
TEST(DelayEnvironments, TheScaleSweep) {
  struct Row {
    int workers;
    double slowest, speedup, threshold, drop_rate;
  };
  for (const Row& row :
       {Row{8, 21.24, 1.116, 16.5, 0.121}, Row{16, 22.22, 1.169, 16.3, 0.134}, Row{32, 23.19, 1.217, 16.4, 0.125},
        Row{64, 24.07, 1.264, 16.3, 0.131}, Row{112, 24.81, 1.302, 16.4, 0.127}, Row{200, 25.54, 1.336, 16.3, 0.133},
        Row{512, 26.59, 1.398, 16.3, 0.130}, Row{1024, 27.28, 1.422, 16.4, 0.127},
        Row{2048, 28.22, 1.466, 16.4, 0.128}}) {
    SCOPED_TRACE(row.workers);
    const int steps = std::clamp(100'000 / row.workers, 100, 600);
    const Measured found =
        measure(draw(*tabulated_lognormal_delay(0.5), row.workers, steps, 12), row.workers, steps, 12, 0.9);
    EXPECT_NEAR(found.slowest / row.slowest, 1, 0.02);
    EXPECT_NEAR(found.best.effective_speedup / row.speedup, 1, 0.02);
    EXPECT_NEAR(found.best.threshold, row.threshold, 0.4);
    EXPECT_NEAR(found.best.drop_rate, row.drop_rate, 0.03);
  }
}

// A histogram of whole steps, as its inverse distribution function; bins [left, right) of constant density.
class Histogram {
 public:
  explicit Histogram(const std::string& file) {
    std::ifstream lines(file);
    std::string line;
    std::getline(lines, line);  // the header
    for (char comma = 0; std::getline(lines, line);) {
      std::istringstream cells(line);
      double left = 0, right = 0, density = 0;
      cells >> left >> comma >> right >> comma >> density;
      total_ += density * (right - left);
      bins_.push_back({left, right, total_});
    }
  }
  std::size_t bins() const { return bins_.size(); }
  double quantile(double u) const {
    const double mass = u * total_;
    const auto bin = std::ranges::lower_bound(bins_, mass, {}, &Bin::mass);
    const double before = bin == bins_.begin() ? 0 : (bin - 1)->mass;
    return bin->left + (bin->right - bin->left) * (mass - before) / (bin->mass - before);
  }

 private:
  struct Bin {
    double left, right;
    double mass;  // up to its right end
  };
  std::vector<Bin> bins_;
  double total_ = 0;
};

// Section 4.1: step times of two real clusters, on as many independent workers, in equal micro-batches; T^c in shares
// of a worker's mean step. The slowdown by quadrature, the best S_eff over 400 drawn steps: a deviation of T of 5 %
// of its mean over sqrt(400) is 0.003, and the sheet's last digit 0.001, and its own Monte-Carlo error like ours.
TEST(DelayEnvironments, TheBestThresholdsOfTwoMeasuredHistograms) {
  struct Case {
    int workers;
    double ratio;
    double speedup_of_12[3], speedup_of_32[3];  // at T^c = 0, 5 and 10 %
  };
  for (const Case& c : {Case{160, 1.257, {1.211, 1.199, 1.190}, {1.240, 1.225, 1.212}},
                        Case{192, 1.109, {1.066, 1.057, 1.053}, {1.093, 1.085, 1.077}}}) {
    const Histogram histogram(fmt::format("{}/workers/time/data/dropcompute-{}.csv", SYNCOPATE_SOURCE_DIR, c.workers));
    ASSERT_EQ(histogram.bins(), 100u);
    const Quantile step = [&](double u) { return histogram.quantile(u); };
    const double mean = expected_order_statistic(step, 1, 1);
    EXPECT_NEAR(expected_maximum(step, c.workers) / mean, c.ratio, 0.002) << c.workers;
    for (const int micro_batches : {12, 32}) {
      constexpr int steps = 400;
      std::vector<double> times;
      for (int n = 0; n < c.workers; ++n)
        for (Step i{}; i < steps; ++i) {
          const double whole = histogram.quantile(RandomStream{.seed = 5, .worker = Rank{n}, .step = i}.uniform(0));
          times.insert(times.end(), static_cast<std::size_t>(micro_batches), whole / micro_batches);
        }
      const auto& expected = micro_batches == 12 ? c.speedup_of_12 : c.speedup_of_32;
      for (int k = 0; k < 3; ++k) {
        SCOPED_TRACE(fmt::format("{} workers, {} micro-batches, T^c {} %", c.workers, micro_batches, 5 * k));
        const auto best =
            search_threshold({times, c.workers, steps, micro_batches}, 0.05 * k * mean, SpeedupForm::effective);
        EXPECT_NEAR(best.effective_speedup, expected[k], 0.01);
        const bool is_tabulated = c.workers == 160 && k > 0 && micro_batches == 12;
        if (is_tabulated) {
          EXPECT_NEAR(best.drop_rate, 0.014, 0.005);
        }
      }
    }
  }
}

}  // namespace
}  // namespace syncopate
