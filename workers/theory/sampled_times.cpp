#include "workers/theory/sampled_times.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>

#include "workers/theory/worker_groups.hpp"

namespace syncopate {
namespace {

constexpr std::int64_t most_draws = 1'000'000;
constexpr std::int64_t fewest_steps = 16;
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

Moments moments_of(const StepLaw& step) { return {step.mean_s, std::sqrt(step.variance_s2)}; }

// What is known of the steps of a group of workers.
struct GroupMoments {
  int workers = 1;
  Moments drawn{};
  Moments declared{};
  Moments law{};  // the one of both that counts
};

// Whether the workers' means differ by more than chance: the variance between them over that within, which is
// around 1 with a deviation of sqrt(2 / (workers - 1)) where they are alike.
bool differ(std::span<const GroupMoments> workers, double steps) {
  if (workers.size() < 2) return false;
  std::vector<double> means;
  double within = 0;
  for (const GroupMoments& worker : workers) {
    means.push_back(worker.drawn.mean);
    within += worker.drawn.deviation * worker.drawn.deviation / static_cast<double>(workers.size());
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

bool have_one_law(std::span<const GroupMoments> groups) {
  return std::ranges::all_of(groups, [&](const GroupMoments& group) { return group.law == groups.front().law; });
}

// Of a step of any worker of any group.
Moments together(std::span<const GroupMoments> groups) {
  std::vector<LawOfPart> parts;
  for (const GroupMoments& group : groups)
    parts.push_back({{group.law.mean, group.law.deviation * group.law.deviation}, group.workers});
  return moments_of(together(parts));
}

// Steps 0, length / steps, ... of those who are drawn.
struct Drawing {
  std::int64_t steps;
  std::int64_t length;
  bool keeps_micro_batches;
};

Drawing plan_drawing(std::span<const WorkerGroup> groups, bool all_drawn, int micro_batches,
                     std::optional<Step> planned) {
  std::int64_t drawn = 0;
  for (const WorkerGroup& group : groups) drawn += std::ssize(group.drawn);
  const std::int64_t wanted = std::clamp(most_draws / (drawn * micro_batches), fewest_steps, most_sampled_steps);
  const std::int64_t steps = planned ? std::clamp<std::int64_t>(planned->value(), 1, wanted) : wanted;
  return {.steps = steps,
          .length = planned ? std::max<std::int64_t>(steps, planned->value()) : steps,
          .keeps_micro_batches = all_drawn && drawn * steps * micro_batches <= most_kept};
}

// Appends a worker's steps to what is drawn.
void draw_steps(const ComputeTime& compute_time, Rank worker, const Drawing& drawing, SampledTimes& result,
                std::vector<double>& slowest) {
  std::vector<Duration> durations(static_cast<std::size_t>(result.micro_batches));
  for (std::int64_t s = 0; s < drawing.steps; ++s) {
    compute_time.durations(worker, Step{s * drawing.length / drawing.steps}, 0, durations);
    const double step_s = to_seconds(sum_of(durations));
    result.steps.push_back(step_s);
    if (drawing.keeps_micro_batches)
      result.micro_batch_times.insert(result.micro_batch_times.end(), durations.begin(), durations.end());
    double& longest = slowest[static_cast<std::size_t>(s)];
    longest = std::max(longest, step_s);
  }
}

NormalTime normal_sum(const SampledTimes& times, const MicroBatchLaw& law, double steps, int workers) {
  const double summed = steps * times.micro_batches;
  return {summed * law.mean, std::sqrt(summed) * law.deviation, workers};
}

}  // namespace

SampledTimes sample_times(const ComputeTime& compute_time, int workers, int micro_batches,
                          std::optional<Step> planned) {
  const std::vector<WorkerGroup> groups = group_workers(compute_time, workers, micro_batches, most_workers);
  const bool all_drawn = workers <= most_workers;
  const Drawing drawing = plan_drawing(groups, all_drawn, micro_batches, planned);
  const auto steps = static_cast<double>(drawing.steps);

  SampledTimes result{.workers = workers, .micro_batches = micro_batches};
  std::vector<double> slowest(static_cast<std::size_t>(drawing.steps));
  std::vector<GroupMoments> moments;
  bool may_be_as_declared = true;
  for (const WorkerGroup& group : groups) {
    const std::size_t first = result.steps.size();
    for (const Rank worker : group.drawn) {
      const std::size_t own = result.steps.size();
      draw_steps(compute_time, worker, drawing, result, slowest);
      const Moments declared = moments_of(compute_time.step_law(worker, micro_batches));
      may_be_as_declared =
          may_be_as_declared && may_be_of(declared, moments_of(std::span(result.steps).subspan(own)), steps);
    }
    const Moments of_group = moments_of(std::span(result.steps).subspan(first));
    moments.push_back({.workers = group.workers, .drawn = of_group, .declared = moments_of(group.declared)});
    result.has_variance = result.has_variance && !std::isinf(group.declared.variance_s2);
  }
  for (GroupMoments& group : moments) group.law = may_be_as_declared ? group.declared : group.drawn;
  const bool by_sample_alone = all_drawn && !may_be_as_declared;
  result.law = law_of(by_sample_alone ? moments_of(result.steps) : together(moments), micro_batches);
  if (all_drawn ? differ(moments, steps) && !have_one_law(moments) : moments.size() > 1)
    for (const GroupMoments& group : moments) result.laws.push_back({law_of(group.law, micro_batches), group.workers});
  if (all_drawn) {
    const Moments maximum = moments_of(slowest);
    result.slowest_s = maximum.mean;
    result.slowest_error_s = maximum.deviation / std::sqrt(steps);
    result.step_times = result.steps;
  }
  result.shortest_s = std::numeric_limits<double>::infinity();
  for (int n = 0; n < workers; ++n) result.shortest_s = std::min(result.shortest_s, compute_time.shortest(Rank{n}));
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

std::vector<NormalTime> normal_sums(const SampledTimes& times, double steps) {
  std::vector<NormalTime> sums;
  for (const auto& [law, workers] : times.laws) sums.push_back(normal_sum(times, law, steps, workers));
  if (times.alike()) sums.push_back(normal_sum(times, times.law, steps, times.workers));
  return sums;
}

std::vector<NormalTime> normal_sums(const SampledTimes& times, double steps, int first, int count) {
  if (times.alike()) return {normal_sum(times, times.law, steps, count)};
  if (times.drawn_steps() == 0) throw std::invalid_argument("not all workers were drawn");
  std::vector<NormalTime> sums;
  for (int i = first; i < first + count; ++i)
    sums.push_back(normal_sum(times, times.laws[static_cast<std::size_t>(i)].law, steps, 1));
  return sums;
}

double expected_slowest_sum(const SampledTimes& times, double steps) {
  return expected_maximum(normal_sums(times, steps));
}

double mean_over_workers(const SampledTimes& times, const std::function<double(const MicroBatchLaw&)>& of_one) {
  if (times.alike()) return of_one(times.law);
  double sum = 0;
  for (const auto& [law, workers] : times.laws) sum += workers * of_one(law);
  return sum / times.workers;
}

double expected_share_done(const SampledTimes& times, Step steps, double threshold_s) {
  const auto count = static_cast<int>(steps.value()) * times.micro_batches;
  return mean_over_workers(
      times, [&](const MicroBatchLaw& law) { return expected_micro_batches(count, threshold_s, law) / count; });
}

SampledMean mean_of(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, count > 1 ? std::sqrt(squares / (count - 1) / count) : 0};
}

SampledMean sampled_order_statistic(const SampledTimes& times, int k) {
  const auto workers = static_cast<std::size_t>(times.workers);
  const std::size_t steps = times.drawn_steps();
  if (steps == 0) throw std::invalid_argument("not all workers were drawn");
  std::vector<double> of_step(workers), of_place;
  for (std::size_t s = 0; s < steps; ++s) {
    for (std::size_t i = 0; i < workers; ++i) of_step[i] = times.step_times[i * steps + s];
    const auto place = of_step.begin() + (k - 1);
    std::ranges::nth_element(of_step, place);
    of_place.push_back(*place);
  }
  return mean_of(of_place);
}

}  // namespace syncopate
