#include "workers/theory/sampled_times.hpp"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

namespace syncopate {
namespace {

constexpr std::int64_t most_draws = 1'000'000;
constexpr std::int64_t fewest_steps = 16, most_steps = 512;
constexpr int most_workers = 4096;  // of more only some are drawn

struct Moments {
  double mean = 0;
  double deviation = 0;  // unbiased variance
};

Moments moments_of(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, count > 1 ? std::sqrt(squares / (count - 1)) : 0};
}

MicroBatchLaw law_of(const Moments& step, int micro_batches) {
  return {step.mean / micro_batches, step.deviation / std::sqrt(micro_batches)};
}

// Whether the workers' means differ by more than chance: the variance between them over that within, which is
// around 1 with a deviation of sqrt(2 / (workers - 1)) where they are alike.
bool differ(std::span<const Moments> workers, double steps) {
  if (workers.size() < 2) return false;
  std::vector<double> means;
  double within = 0;
  for (const Moments& worker : workers) {
    means.push_back(worker.mean);
    within += worker.deviation * worker.deviation / static_cast<double>(workers.size());
  }
  const Moments between = moments_of(means);
  const double rounding = 1e-9 * between.mean;
  if (between.deviation <= rounding) return false;
  constexpr double deviations = 6;
  const double ratio = steps * between.deviation * between.deviation / within;
  return !(ratio <= 1 + deviations * std::sqrt(2 / static_cast<double>(workers.size() - 1)));
}

}  // namespace

SampledTimes sample_times(const ComputeTime& compute_time, int workers, int micro_batches,
                          std::optional<Step> planned) {
  const int drawn = std::min(workers, most_workers);
  const std::int64_t wanted =
      std::clamp(most_draws / (static_cast<std::int64_t>(drawn) * micro_batches), fewest_steps, most_steps);
  const std::int64_t steps = planned ? std::clamp<std::int64_t>(planned->value(), 1, wanted) : wanted;
  const std::int64_t apart = planned ? std::max<std::int64_t>(1, planned->value() / steps) : 1;

  SampledTimes result;
  result.steps.reserve(static_cast<std::size_t>(drawn * steps));
  std::vector<Moments> of_workers;
  std::vector<double> slowest(static_cast<std::size_t>(steps));
  std::vector<Duration> durations(static_cast<std::size_t>(micro_batches));
  for (int i = 0; i < drawn; ++i) {
    const Rank worker{static_cast<int>(static_cast<std::int64_t>(i) * workers / drawn)};
    for (std::int64_t s = 0; s < steps; ++s) {
      compute_time.durations(worker, Step{s * apart}, 0, durations);
      const double step_s = to_seconds(std::accumulate(durations.begin(), durations.end(), Duration{}));
      result.steps.push_back(step_s);
      double& longest = slowest[static_cast<std::size_t>(s)];
      longest = std::max(longest, step_s);
    }
    of_workers.push_back(moments_of(std::span(result.steps).last(static_cast<std::size_t>(steps))));
  }
  result.law = law_of(moments_of(result.steps), micro_batches);
  if (drawn == workers) {
    const Moments maximum = moments_of(slowest);
    result.slowest_s = maximum.mean;
    result.slowest_error_s = maximum.deviation / std::sqrt(static_cast<double>(steps));
    if (differ(of_workers, static_cast<double>(steps)))
      for (const Moments& worker : of_workers) result.laws.push_back(law_of(worker, micro_batches));
  }
  std::ranges::sort(result.steps);
  return result;
}

double expected_slowest_sum(const SampledTimes& times, int workers, int micro_batches, double steps) {
  const double count = steps * micro_batches;
  if (times.alike()) {
    const double mean = count * times.law.mean, deviation = std::sqrt(count) * times.law.deviation;
    if (workers == 1 || deviation == 0) return mean;
    const Quantile normal = [](double p) { return boost::math::quantile(boost::math::normal(), p); };
    return mean + deviation * expected_maximum(normal, workers);
  }
  std::vector<NormalTime> sums;
  for (const MicroBatchLaw& law : times.laws) sums.push_back({count * law.mean, std::sqrt(count) * law.deviation});
  return expected_maximum(sums);
}

}  // namespace syncopate
