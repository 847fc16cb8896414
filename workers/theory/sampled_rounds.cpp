#include "workers/theory/sampled_rounds.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace syncopate {
namespace {

constexpr std::size_t fewest_rounds = 8;

// How many rounds the drawn steps make; 0 where they are too few.
std::size_t rounds_in(std::size_t steps, std::int64_t period) {
  const std::size_t rounds = steps / static_cast<std::size_t>(period);
  return rounds < fewest_rounds ? 0 : rounds;
}

// One worker's part of a round.
struct Part {
  Duration time{};
  std::int64_t kept = 0;
};

// `durations`: of its micro-batches, step after step.
Part part_of(std::span<const Duration> durations, std::size_t micro_batches, Duration step_limit,
             Duration round_limit) {
  Part part;
  for (; !durations.empty(); durations = durations.subspan(micro_batches)) {
    Duration end{};
    for (const Duration duration : durations.first(micro_batches)) {
      end = std::min(end + duration, longest_duration);
      if (end < step_limit && part.time + end < round_limit) ++part.kept;
    }
    part.time = std::min(part.time + std::min(end, step_limit), round_limit);
  }
  return part;
}

}  // namespace

double slowest_sum(const SampledTimes& times, int begin, int end, std::size_t first, std::size_t count) {
  double slowest_s = 0;
  for (int worker = begin; worker < end; ++worker) {
    const auto own =
        std::span(times.step_times).subspan(static_cast<std::size_t>(worker) * times.drawn_steps() + first);
    slowest_s =
        std::max(slowest_s, std::accumulate(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(count), 0.0));
  }
  return slowest_s;
}

double awaited_messages(const SampledTimes& times, std::size_t step, double next_s, double messages_s) {
  double sum_s = 0;
  for (std::size_t worker = 0; worker < static_cast<std::size_t>(times.workers); ++worker)
    sum_s += std::clamp(next_s - times.step_times[worker * times.drawn_steps() + step], 0.0, messages_s);
  return sum_s / times.workers;
}

std::optional<SampledMean> sample_rounds(const SampledTimes& times, std::int64_t period,
                                         const std::function<double(std::size_t first)>& time_s) {
  std::vector<double> rounds(rounds_in(times.drawn_steps(), period));
  if (rounds.empty()) return std::nullopt;
  for (std::size_t r = 0; r < rounds.size(); ++r) rounds[r] = time_s(r * static_cast<std::size_t>(period));
  return mean_of(rounds);
}

std::optional<SampledRounds> sample_rounds(const SampledTimes& times, std::int64_t period, const Limits& limits) {
  const auto length = static_cast<std::size_t>(period);
  if (std::isinf(limits.step_s) && std::isinf(limits.round_s)) {
    const auto time_s = sample_rounds(
        times, period, [&](std::size_t first) { return slowest_sum(times, 0, times.workers, first, length); });
    if (!time_s) return std::nullopt;
    return SampledRounds{.time_s = *time_s};
  }
  if (times.micro_batch_times.empty()) return std::nullopt;
  std::vector<double> kept;
  const auto micro_batches = static_cast<std::size_t>(times.micro_batches), steps = times.drawn_steps();
  const double of_round = static_cast<double>(times.workers) * static_cast<double>(length * micro_batches);
  const Duration step_limit = from_seconds(limits.step_s), round_limit = from_seconds(limits.round_s);
  const auto time_s = sample_rounds(times, period, [&](std::size_t first) {
    Part all;
    for (std::size_t worker = 0; worker < static_cast<std::size_t>(times.workers); ++worker) {
      const auto own =
          std::span(times.micro_batch_times).subspan((worker * steps + first) * micro_batches, length * micro_batches);
      const Part part = part_of(own, micro_batches, step_limit, round_limit);
      all.time = std::max(all.time, part.time);
      all.kept += part.kept;
    }
    kept.push_back(static_cast<double>(all.kept) / of_round);
    return to_seconds(all.time);
  });
  if (!time_s) return std::nullopt;
  SampledRounds result{*time_s, mean_of(kept)};
  result.kept.error = std::max(result.kept.error, 1 / (of_round * static_cast<double>(kept.size())));
  return result;
}

}  // namespace syncopate
