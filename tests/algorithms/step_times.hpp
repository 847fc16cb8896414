// Mean step times in the two settings in which tests compare rules for late workers. In one, times are 1 s plus an
// exponential delay of 0.5 s on average; in the other, a few workers are always ten times slower than the others.
#pragma once

#include <fmt/format.h>

#include <memory>

#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {

struct StepTimeCase {
  int workers;
  int quorum;
  int steps;
  double step_s;   // expected mean
  double error_s;  // standard error of the mean over the steps, plus that of the expectation
};

// Workers from rank `first_slow` on take 10 to 10.5 s, the others 1 to 1.05 s.
class SlowWorkers : public DelayProcess {
 public:
  explicit SlowWorkers(int first_slow) : first_slow_(first_slow) {}
  void add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const override {
    const double factor = stream.worker.value < first_slow_ ? 1 : 10;
    for (std::size_t i = 0; i < added_s.size(); ++i)
      added_s[i] += factor * (1 + 0.05 * stream.uniform(first + static_cast<std::uint32_t>(i))) - 1;
  }
  double mean_s() const override { return 0; }

 private:
  int first_slow_;
};

// Checks the mean within four standard errors. One run in 16,000 would fail by chance, but seeds are fixed here.
inline void expect_mean_step(const StepTimeCase& c, const Algorithm& algorithm,
                             const std::shared_ptr<const DelayProcess>& delay) {
  const SimulatedRun setup{
      .workers = c.workers, .network_s = 0, .budget = {.steps = c.steps}, .delays = {delay}, .objective = nullptr};
  const auto outcome = setup.run(algorithm);
  ASSERT_EQ(outcome.rounds.size(), static_cast<std::size_t>(c.steps));
  const double step_s = to_seconds(outcome.rounds.back().end) / c.steps;
  EXPECT_NEAR(step_s, c.step_s, 4 * c.error_s) << c.quorum << " of " << c.workers;
  testing::Test::RecordProperty(fmt::format("mean_step_{}_of_{}", c.quorum, c.workers), std::to_string(step_s));
  expect_exact_accounts(outcome);
}

inline void expect_mean_step_with_exponential_delays(const StepTimeCase& c, const Algorithm& algorithm) {
  expect_mean_step(c, algorithm, exponential_delay(0.5));
}

inline void expect_mean_step_with_slow_workers(const StepTimeCase& c, const Algorithm& algorithm) {
  expect_mean_step(c, algorithm, std::make_shared<SlowWorkers>(c.quorum));
}

// Mean and standard deviation of the k-th smallest of n times of 1 s + Exp(2). The k-th smallest of n exponential
// numbers of rate 2 is a sum of independent exponential numbers of rates 2 i, i = n - k + 1 .. n.
struct OrderStatistic {
  double mean_s;
  double deviation_s;
};
inline OrderStatistic order_statistic(int k, int n) {
  double mean = 1, variance = 0;
  for (int i = n - k + 1; i <= n; ++i) {
    mean += 1 / (2.0 * i);
    variance += 1 / (4.0 * i * i);
  }
  return {mean, std::sqrt(variance)};
}

}  // namespace syncopate
