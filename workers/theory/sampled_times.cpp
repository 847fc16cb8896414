#include "workers/theory/sampled_times.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>

namespace syncopate {
namespace {

constexpr std::int64_t most_draws = 1'000'000;
constexpr std::int64_t fewest_steps = 16, most_steps = 512;
constexpr int most_workers = 4096;             // of more only some are drawn
constexpr std::int64_t most_kept = 4'000'000;  // micro-batches

struct Moments {
  double mean = 0;
  double deviation = 0;  // unbiased variance
  bool operator==(const Moments&) const = default;
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

// Whether the law of a worker's steps that its processes declare is finite, and such that these steps may be its:
// a drift's is that of a run without end.
bool may_be_of(const Moments& declared, const Moments& sampled, double steps) {
  if (!std::isfinite(declared.mean) || !std::isfinite(declared.deviation)) return false;
  constexpr double deviations = 6, rounding = 1e-9;
  const double chance = deviations * declared.deviation / std::sqrt(steps) + rounding * declared.mean;
  return std::abs(sampled.mean - declared.mean) <= chance;
}

// Of a step of any of the workers.
Moments together(std::span<const Moments> workers) {
  const auto count = static_cast<double>(workers.size());
  double mean = 0, variance = 0;
  for (const Moments& worker : workers) mean += worker.mean / count;
  for (const Moments& worker : workers)
    variance += (worker.deviation * worker.deviation + (worker.mean - mean) * (worker.mean - mean)) / count;
  return {mean, std::sqrt(variance)};
}

}  // namespace

SampledTimes sample_times(const ComputeTime& compute_time, int workers, int micro_batches,
                          std::optional<Step> planned) {
  const int drawn = std::min(workers, most_workers);
  const std::int64_t wanted =
      std::clamp(most_draws / (static_cast<std::int64_t>(drawn) * micro_batches), fewest_steps, most_steps);
  const std::int64_t steps = planned ? std::clamp<std::int64_t>(planned->value(), 1, wanted) : wanted;
  const std::int64_t length = planned ? std::max<std::int64_t>(steps, planned->value()) : steps;

  SampledTimes result{.workers = workers, .micro_batches = micro_batches};
  result.steps.reserve(static_cast<std::size_t>(drawn * steps));
  std::vector<Moments> of_workers, declared;
  std::vector<double> slowest(static_cast<std::size_t>(steps));
  std::vector<Duration> durations(static_cast<std::size_t>(micro_batches));
  const bool keeps = drawn == workers && drawn * steps * micro_batches <= most_kept;
  if (keeps) result.micro_batch_times.reserve(static_cast<std::size_t>(drawn * steps * micro_batches));
  for (int i = 0; i < drawn; ++i) {
    const Rank worker{static_cast<int>(static_cast<std::int64_t>(i) * workers / drawn)};
    for (std::int64_t s = 0; s < steps; ++s) {
      compute_time.durations(worker, Step{s * length / steps}, 0, durations);
      const double step_s = to_seconds(sum_of(durations));
      result.steps.push_back(step_s);
      if (keeps) result.micro_batch_times.insert(result.micro_batch_times.end(), durations.begin(), durations.end());
      double& longest = slowest[static_cast<std::size_t>(s)];
      longest = std::max(longest, step_s);
    }
    of_workers.push_back(moments_of(std::span(result.steps).last(static_cast<std::size_t>(steps))));
    const StepLaw law = compute_time.step_law(worker, micro_batches);
    declared.push_back({law.mean_s, std::sqrt(law.variance_s2)});
    result.has_variance = result.has_variance && !std::isinf(law.variance_s2);
  }
  result.shortest_s = std::numeric_limits<double>::infinity();
  for (int n = 0; n < workers; ++n) result.shortest_s = std::min(result.shortest_s, compute_time.shortest(Rank{n}));
  bool unlike = differ(of_workers, static_cast<double>(steps));
  result.law = law_of(moments_of(result.steps), micro_batches);
  if (std::ranges::equal(declared, of_workers, [&](const Moments& law, const Moments& worker) {
        return may_be_of(law, worker, static_cast<double>(steps));
      })) {
    of_workers = declared;
    unlike = unlike && std::ranges::any_of(declared, [&](const Moments& law) { return law != declared.front(); });
    result.law = law_of(together(declared), micro_batches);
  }
  if (drawn == workers) {
    const Moments maximum = moments_of(slowest);
    result.slowest_s = maximum.mean;
    result.slowest_error_s = maximum.deviation / std::sqrt(static_cast<double>(steps));
    if (unlike)
      for (const Moments& worker : of_workers) result.laws.push_back(law_of(worker, micro_batches));
  }
  if (drawn == workers) result.step_times = result.steps;
  std::ranges::sort(result.steps);
  return result;
}

SampledTimes choose_steps(const SampledTimes& times, const std::function<bool(std::size_t step)>& chosen) {
  SampledTimes result{.workers = times.workers, .micro_batches = times.micro_batches};
  const auto micro_batches = static_cast<std::size_t>(times.micro_batches), steps = times.drawn_steps();
  for (std::size_t i = 0; i < times.step_times.size(); ++i) {
    if (!chosen(i % steps)) continue;
    result.step_times.push_back(times.step_times[i]);
    if (times.micro_batch_times.empty()) continue;
    const auto own = std::span(times.micro_batch_times).subspan(i * micro_batches, micro_batches);
    result.micro_batch_times.insert(result.micro_batch_times.end(), own.begin(), own.end());
  }
  return result;
}

std::vector<NormalTime> normal_sums(const SampledTimes& times, double steps, int first, int count) {
  const double summed = steps * times.micro_batches;
  const auto sum = [&](const MicroBatchLaw& law, int workers) {
    return NormalTime{summed * law.mean, std::sqrt(summed) * law.deviation, workers};
  };
  if (times.alike()) return {sum(times.law, count)};
  std::vector<NormalTime> sums;
  for (int i = first; i < first + count; ++i) sums.push_back(sum(times.laws[static_cast<std::size_t>(i)], 1));
  return sums;
}

double expected_slowest_sum(const SampledTimes& times, double steps) {
  return expected_maximum(normal_sums(times, steps, 0, times.workers));
}

double expected_share_done(const SampledTimes& times, Step steps, double threshold_s) {
  const auto count = static_cast<int>(steps.value()) * times.micro_batches;
  const auto share = [&](const MicroBatchLaw& law) { return expected_micro_batches(count, threshold_s, law) / count; };
  if (times.alike()) return share(times.law);
  double sum = 0;
  for (const MicroBatchLaw& law : times.laws) sum += share(law);
  return sum / static_cast<double>(times.laws.size());
}

double sampled_order_statistic(const SampledTimes& times, int k) {
  const auto workers = static_cast<std::size_t>(times.workers);
  const std::size_t steps = times.drawn_steps();
  if (steps == 0) throw std::invalid_argument("not all workers were drawn");
  std::vector<double> of_step(workers);
  double sum = 0;
  for (std::size_t s = 0; s < steps; ++s) {
    for (std::size_t i = 0; i < workers; ++i) of_step[i] = times.step_times[i * steps + s];
    const auto place = of_step.begin() + (k - 1);
    std::ranges::nth_element(of_step, place);
    sum += *place;
  }
  return sum / static_cast<double>(steps);
}

}  // namespace syncopate
