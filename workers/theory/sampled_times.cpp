#include "workers/theory/sampled_times.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "workers/base/linear_algebra.hpp"

namespace syncopate {

namespace {

// The columns of the fit: 1, tokens, padded tokens, squared lengths; or one cost for each of these columns.
using Row = std::array<double, 4>;

Row row_of(const TimedLengths& one) { return {1, one.tokens, one.padded_tokens, one.squares}; }

// Fits costs for these columns by least squares; nullopt if the columns are not independent.
std::optional<Row> solve(std::span<const TimedLengths> timed, const std::vector<std::size_t>& columns) {
  if (timed.size() < columns.size()) return {};
  Row scale{};
  for (const TimedLengths& one : timed)
    for (const std::size_t column : columns) scale[column] = std::max(scale[column], std::abs(row_of(one)[column]));
  Matrix a(static_cast<int>(timed.size()), static_cast<int>(columns.size()));
  std::vector<double> b;
  for (std::size_t i = 0; i < timed.size(); ++i) {
    for (std::size_t k = 0; k < columns.size(); ++k)
      a(static_cast<int>(i), static_cast<int>(k)) = row_of(timed[i])[columns[k]] / scale[columns[k]];
    b.push_back(timed[i].seconds);
  }
  const std::vector<double> x = PivotedQr(std::move(a)).solve(b);
  Row costs{};
  for (std::size_t k = 0; k < columns.size(); ++k) {
    constexpr double too_large = 1e6;  // relative to the largest time: then columns are nearly dependent
    const double largest_s = std::ranges::max(b);
    if (!std::isfinite(x[k]) || std::abs(x[k]) > too_large * largest_s) return {};
    costs[columns[k]] = x[k] / scale[columns[k]];
  }
  return costs;
}

double line(const Row& costs, const TimedLengths& one) {
  const Row row = row_of(one);
  return costs[0] * row[0] + costs[1] * row[1] + costs[2] * row[2] + costs[3] * row[3];
}

double squared_residuals(const Row& costs, std::span<const TimedLengths> timed) {
  double sum = 0;
  for (const TimedLengths& one : timed) sum += std::pow(one.seconds - line(costs, one), 2);
  return sum;
}

// Returns the costs with the smallest residuals among all choices of columns that yield no negative cost. If choices
// are equal up to rounding, takes the one with the fewest columns. So lengths that are all equal get no cost.
Row best_costs(std::span<const TimedLengths> timed, Computed computed) {
  const std::vector<std::vector<std::size_t>> choices = {{0},       {1},       {2},       {3},       {0, 1},
                                                         {0, 2},    {0, 3},    {1, 2},    {1, 3},    {2, 3},
                                                         {0, 1, 2}, {0, 1, 3}, {0, 2, 3}, {1, 2, 3}, {0, 1, 2, 3}};
  std::optional<Row> best;
  double least = 0, total = 0;
  for (const TimedLengths& one : timed) total += one.seconds * one.seconds;
  for (const auto& columns : choices) {
    const auto has = [&](std::size_t column) { return std::ranges::find(columns, column) != columns.end(); };
    if (computed == Computed::own && has(1) && has(2)) continue;
    if (computed == Computed::padded && has(1)) continue;
    const auto costs = solve(timed, columns);
    if (!costs || std::ranges::any_of(*costs, [](double cost) { return cost < 0; })) continue;
    const double left = squared_residuals(*costs, timed);
    constexpr double rounding = 1e-12;
    if (best && left >= least - rounding * total) continue;
    best = costs;
    least = left;
  }
  return best.value_or(Row{});
}

constexpr std::int64_t most_draws = 1'000'000;
constexpr std::int64_t fewest_steps = 16;
constexpr int most_drawn_workers = 4096;       // with more workers than this, a sample of them is drawn
constexpr std::int64_t most_kept = 4'000'000;  // number of micro-batches whose times are kept

struct MeanAndDeviation {
  double mean = 0;
  double deviation = 0;  // from the unbiased variance
  bool operator==(const MeanAndDeviation&) const = default;
};

StepLaw sample_law(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, count > 1 ? squares / (count - 1) : 0};
}

MicroBatchLaw law_of(const MeanAndDeviation& step, int micro_batches) {
  return {step.mean / micro_batches, step.deviation / std::sqrt(micro_batches)};
}

MeanAndDeviation moments_of(const StepLaw& step) { return {step.mean_s, std::sqrt(step.variance_s2)}; }
MeanAndDeviation moments_of(std::span<const double> values) { return moments_of(sample_law(values)); }

struct GroupMoments {
  int workers = 1;
  MeanAndDeviation drawn{};
  MeanAndDeviation declared{};
  MeanAndDeviation law{};  // the distribution in use: declared or sampled
};

// Whether the workers' means differ by more than chance. If all workers have one distribution, `ratio` is about 1, with
// a standard deviation of sqrt(2 / (workers - 1)). It is the variance of the workers' means, times the number of steps,
// divided by the mean variance of a worker's steps.
bool differ(std::span<const GroupMoments> workers, double steps) {
  if (workers.size() < 2) return false;
  std::vector<double> means;
  double within = 0;
  for (const GroupMoments& worker : workers) {
    means.push_back(worker.drawn.mean);
    within += worker.drawn.deviation * worker.drawn.deviation / static_cast<double>(workers.size());
  }
  const MeanAndDeviation between = moments_of(means);
  const double rounding = 1e-9 * between.mean;
  if (between.deviation <= rounding) return false;
  constexpr double deviations = 6;
  const double ratio = steps * between.deviation * between.deviation / within;
  return !(ratio <= 1 + deviations * std::sqrt(2 / static_cast<double>(workers.size() - 1)));
}

// Whether a worker's declared distribution is finite and its mean agrees with the worker's drawn steps. A declared
// distribution may not agree if it is that of an endless run, as with a drift.
bool may_be_of(const MeanAndDeviation& declared, const MeanAndDeviation& sampled, double steps) {
  if (!std::isfinite(declared.mean) || !std::isfinite(declared.deviation)) return false;
  constexpr double deviations = 6, rounding = 1e-9;
  const double chance = deviations * declared.deviation / std::sqrt(steps) + rounding * declared.mean;
  return std::abs(sampled.mean - declared.mean) <= chance;
}

bool have_one_law(std::span<const GroupMoments> groups) {
  return std::ranges::all_of(groups, [&](const GroupMoments& group) { return group.law == groups.front().law; });
}

// Mean and variance of a step over the workers of all parts. The variance is the sum of those within and between parts.
struct LawOfPart {
  StepLaw law{};
  int workers = 1;
};
StepLaw together(const std::vector<LawOfPart>& parts) {
  double workers = 0;
  for (const LawOfPart& part : parts) workers += part.workers;
  StepLaw all;
  for (const auto& [law, count] : parts) all.mean_s += count / workers * law.mean_s;
  for (const auto& [law, count] : parts) {
    const double off_s = law.mean_s - all.mean_s;
    all.variance_s2 += count / workers * (law.variance_s2 + off_s * off_s);
  }
  return all;
}

MeanAndDeviation together(std::span<const GroupMoments> groups) {
  std::vector<LawOfPart> parts;
  for (const GroupMoments& group : groups)
    parts.push_back({{group.law.mean, group.law.deviation * group.law.deviation}, group.workers});
  return moments_of(together(parts));
}

// The steps of each drawn worker that are drawn: 0, length / steps, 2 length / steps, ...
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

// Appends a worker's drawn steps to `result`, and updates each step's slowest time.
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

// Returns a group for each declared distribution, in ascending order of mean, then variance, with all its workers.
std::vector<WorkerGroup> kinds_of(const ComputeTime& compute_time, int workers, int micro_batches) {
  std::map<std::pair<double, double>, WorkerGroup> kinds;
  for (int n = 0; n < workers; ++n) {
    const StepLaw law = compute_time.step_law(Rank{n}, micro_batches);
    // A process that declares no variance has NaN, which cannot be ordered.
    const double variance_s2 = std::isnan(law.variance_s2) ? std::numeric_limits<double>::infinity() : law.variance_s2;
    WorkerGroup& kind = kinds[{law.mean_s, variance_s2}];
    kind.declared = law;
    kind.drawn.emplace_back(n);
    kind.workers = static_cast<int>(kind.drawn.size());
  }
  std::vector<WorkerGroup> ascending;
  for (auto& [key, kind] : kinds) ascending.push_back(std::move(kind));
  return ascending;
}

WorkerGroup merged(std::vector<WorkerGroup>::iterator begin, std::vector<WorkerGroup>::iterator end) {
  WorkerGroup all{.workers = 0};
  std::vector<LawOfPart> parts;
  for (; begin != end; ++begin) {
    parts.push_back({begin->declared, begin->workers});
    all.drawn.insert(all.drawn.end(), begin->drawn.begin(), begin->drawn.end());
    all.workers += begin->workers;
  }
  all.declared = together(parts);
  return all;
}

// The last worker to finish is probably one of the slowest kinds. So half of the groups are for the slowest kinds, one
// each, and the faster kinds share the others.
std::vector<WorkerGroup> merge_faster_ones(std::vector<WorkerGroup> ascending, std::size_t most) {
  const std::size_t apart = most / 2, groups = most - apart, faster = ascending.size() - apart;
  std::vector<WorkerGroup> result;
  const auto at = [&](std::size_t group) {
    return ascending.begin() + static_cast<std::ptrdiff_t>(group * faster / groups);
  };
  for (std::size_t group = 0; group < groups; ++group) result.push_back(merged(at(group), at(group + 1)));
  std::move(at(groups), ascending.end(), std::back_inserter(result));
  return result;
}

constexpr std::size_t fewest_rounds = 8;

}  // namespace

LengthFit fit_lengths(std::span<const TimedLengths> timed, Computed computed) {
  const Row costs = best_costs(timed, computed);
  LengthFit fit{.cost = {.base_s = costs[0],
                         .per_token_s = costs[1],
                         .per_padded_token_s = costs[2],
                         .per_squared_length_s = costs[3]},
                .points = static_cast<int>(timed.size())};
  double mean = 0, variance = 0;
  for (const TimedLengths& one : timed) mean += one.seconds / fit.points;
  for (const TimedLengths& one : timed) {
    variance += std::pow(one.seconds - mean, 2) / fit.points;
    fit.largest_residual_s = std::max(fit.largest_residual_s, std::abs(one.seconds - line(costs, one)));
  }
  const double left = squared_residuals(costs, timed) / fit.points;
  fit.typical_residual_s = std::sqrt(left);
  if (variance > 0) fit.r_squared = 1 - left / variance;
  return fit;
}

SampledTimes sample_times(const ComputeTime& compute_time, int workers, int micro_batches,
                          std::optional<Step> planned) {
  const std::vector<WorkerGroup> groups = group_workers(compute_time, workers, micro_batches, most_drawn_workers);
  const bool all_drawn = workers <= most_drawn_workers;
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
      const MeanAndDeviation declared = moments_of(compute_time.step_law(worker, micro_batches));
      may_be_as_declared =
          may_be_as_declared && may_be_of(declared, moments_of(std::span(result.steps).subspan(own)), steps);
    }
    const MeanAndDeviation of_group = moments_of(std::span(result.steps).subspan(first));
    moments.push_back({.workers = group.workers, .drawn = of_group, .declared = moments_of(group.declared)});
    result.has_variance = result.has_variance && !std::isinf(group.declared.variance_s2);
  }
  for (GroupMoments& group : moments) group.law = may_be_as_declared ? group.declared : group.drawn;
  const bool by_sample_alone = all_drawn && !may_be_as_declared;
  result.law = law_of(by_sample_alone ? moments_of(result.steps) : together(moments), micro_batches);
  if (all_drawn ? differ(moments, steps) && !have_one_law(moments) : moments.size() > 1)
    for (const GroupMoments& group : moments) result.laws.push_back({law_of(group.law, micro_batches), group.workers});
  if (all_drawn) {
    const MeanAndDeviation maximum = moments_of(slowest);
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

double mean_over_workers(const SampledTimes& times, const std::function<double(const MicroBatchLaw&)>& of_one) {
  if (times.alike()) return of_one(times.law);
  double sum = 0;
  for (const auto& [law, workers] : times.laws) sum += workers * of_one(law);
  return sum / times.workers;
}

SampledMean mean_of(std::span<const double> values) {
  const StepLaw law = sample_law(values);
  return {law.mean_s, std::sqrt(law.variance_s2 / static_cast<double>(values.size()))};
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

std::vector<WorkerGroup> group_workers(const ComputeTime& compute_time, int workers, int micro_batches, int most) {
  std::vector<WorkerGroup> groups;
  if (workers <= most) {
    for (int n = 0; n < workers; ++n)
      groups.push_back({.declared = compute_time.step_law(Rank{n}, micro_batches), .drawn = {Rank{n}}});
    return groups;
  }
  groups = kinds_of(compute_time, workers, micro_batches);
  if (groups.size() > static_cast<std::size_t>(most))
    groups = merge_faster_ones(std::move(groups), static_cast<std::size_t>(most));
  for (WorkerGroup& group : groups) {
    const std::int64_t size = group.workers, drawn = std::max<std::int64_t>(1, most * size / workers);
    for (std::int64_t i = 0; i < drawn; ++i)
      group.drawn[static_cast<std::size_t>(i)] = group.drawn[static_cast<std::size_t>(i * size / drawn)];
    group.drawn.resize(static_cast<std::size_t>(drawn));
  }
  return groups;
}

double expected_slowest_sum(const SampledTimes& times, double steps) {
  const double summed = steps * times.micro_batches;
  std::vector<NormalTime> sums;
  const auto add = [&](const MicroBatchLaw& law, int workers) {
    sums.push_back({summed * law.mean, std::sqrt(summed) * law.deviation, workers});
  };
  for (const auto& [law, workers] : times.laws) add(law, workers);
  if (times.alike()) add(times.law, times.workers);
  return expected_maximum(sums);
}

std::optional<SampledMean> sampled_slowest_sum(const SampledTimes& times, Step steps) {
  const auto length = static_cast<std::size_t>(steps.value());
  std::vector<double> rounds(times.drawn_steps() / length);
  if (rounds.size() < fewest_rounds) return std::nullopt;
  const double* step_s = times.step_times.data();
  for (int worker = 0; worker < times.workers; ++worker, step_s += times.drawn_steps())
    for (std::size_t r = 0; r < rounds.size(); ++r)
      rounds[r] = std::max(rounds[r], std::accumulate(step_s + r * length, step_s + (r + 1) * length, 0.0));
  return mean_of(rounds);
}

std::optional<CutSteps> sample_cut_steps(const SampledTimes& times, double threshold_s) {
  if (std::isinf(threshold_s)) {
    const auto slowest_s = sampled_slowest_sum(times, Step{1});
    return slowest_s ? std::optional(CutSteps{*slowest_s}) : std::nullopt;
  }
  const std::size_t steps = times.drawn_steps();
  if (times.micro_batch_times.empty() || steps < fewest_rounds) return std::nullopt;
  const Duration threshold = from_seconds(threshold_s);
  std::vector<Duration> slowest(steps);
  std::vector<std::int64_t> ended(steps);  // number of micro-batches that end before the threshold, by step
  const double of_step = static_cast<double>(times.workers) * times.micro_batches;
  const Duration* duration = times.micro_batch_times.data();
  for (int worker = 0; worker < times.workers; ++worker)
    for (std::size_t step = 0; step < steps; ++step) {
      Duration end{};
      for (int m = 0; m < times.micro_batches; ++m) {
        end = std::min(end + *duration++, longest_duration);
        if (end < threshold) ++ended[step];
      }
      slowest[step] = std::max(slowest[step], std::min(end, threshold));
    }
  std::vector<double> time_s, kept;
  for (const Duration duration_of_step : slowest) time_s.push_back(to_seconds(duration_of_step));
  for (const std::int64_t count : ended) kept.push_back(static_cast<double>(count) / of_step);
  CutSteps result{mean_of(time_s), mean_of(kept)};
  result.kept.error = std::max(result.kept.error, 1 / (of_step * static_cast<double>(steps)));
  return result;
}

}  // namespace syncopate
