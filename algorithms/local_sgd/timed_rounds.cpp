#include "algorithms/local_sgd/timed_rounds.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

namespace syncopate {
namespace {

constexpr std::size_t fewest_rounds = 8;

struct DrawnRound {
  double time_s = 0;
  double communication_s = 0;
  double steps = 0;  // of the fastest
  double kept = 0;   // of all, per worker
};

// Rounds put together from drawn steps, each worker's one after the other, as long as there are any.
std::vector<DrawnRound> draw_rounds(const TimedRounds& timed, const SynchronisationCosts& costs,
                                    const SampledTimes& times) {
  constexpr double rounding_s = 5e-10;  // of sums of whole nanoseconds
  const auto workers = static_cast<std::size_t>(times.workers);
  std::vector<std::size_t> next(workers);  // step of each worker
  std::vector<DrawnRound> rounds;
  while (true) {
    DrawnRound round{.time_s = costs.average_s, .communication_s = costs.average_s};
    std::vector<double> steps(workers);
    do {
      double slowest_s = 0;
      for (std::size_t worker = 0; worker < workers; ++worker) {
        double passed_s = 0;
        for (; passed_s < to_seconds(timed.length) - rounding_s; ++steps[worker]) {
          if (next[worker] == times.drawn_steps()) return rounds;
          passed_s += times.step_times[worker * times.drawn_steps() + next[worker]++];
        }
        slowest_s = std::max(slowest_s, passed_s);
      }
      round.time_s += slowest_s + costs.meeting_s;
      round.communication_s += costs.meeting_s;
      round.kept = std::accumulate(steps.begin(), steps.end(), 0.0);
    } while (round.kept < static_cast<double>(timed.minimum_steps));
    round.kept /= static_cast<double>(workers);
    round.steps = *std::ranges::max_element(steps);
    rounds.push_back(round);
  }
}

// Of a ratio of two sums over rounds, its standard error.
template <typename Above, typename Below>
SampledMean ratio_of(const std::vector<DrawnRound>& rounds, const Above& above, const Below& below) {
  double sum_above = 0, sum_below = 0;
  for (const DrawnRound& round : rounds) {
    sum_above += above(round);
    sum_below += below(round);
  }
  const double ratio = sum_above / sum_below;
  double squares = 0;
  for (const DrawnRound& round : rounds) squares += std::pow(above(round) - ratio * below(round), 2);
  const auto count = static_cast<double>(rounds.size());
  return {ratio, std::sqrt(squares * count / (count - 1)) / sum_below};
}

}  // namespace

Forecast predict_timed_rounds(const TimedRounds& timed, const SynchronisationCosts& costs,
                              const PredictionInput& input) {
  if (input.times.step_times.empty() || !input.times.slowest_s) return Forecast::none(not_all_drawn);
  if (timed.counted_from == TimedRounds::CountedFrom::arrival)
    return Forecast::none("where time counts from arrivals, a round depends on all that came before it");
  const std::vector<DrawnRound> rounds = draw_rounds(timed, costs, input.times);
  if (rounds.size() < fewest_rounds)
    return Forecast::none("its rounds are drawn step by step, and are too long for the steps that are drawn");
  const auto steps = [](const DrawnRound& round) { return round.steps; };
  const SampledMean time_s = ratio_of(
      rounds, [](const DrawnRound& round) { return round.time_s; }, steps);
  const SampledMean kept = ratio_of(
      rounds, [](const DrawnRound& round) { return round.kept; }, steps);
  const SampledMean communication_s = ratio_of(
      rounds, [](const DrawnRound& round) { return round.communication_s; }, steps);
  const double of_run = static_cast<double>(input.steps().value_or(std::numeric_limits<Step::Rep>::max() / 2).value());
  const double together = std::min(static_cast<double>(timed.warmup_steps.value()) / of_run, 1.0), alone = 1 - together;
  const double synchronous_s = *input.times.slowest_s + input.all_reduce_s();
  Prediction prediction{.formula = "rounds of sampled steps until the time",
                        .step_time_s = together * synchronous_s + alone * time_s.mean,
                        .communication_s = together * input.all_reduce_s() + alone * communication_s.mean,
                        .kept = together + alone * kept.mean,
                        .sync_step_time_s = synchronous_s,
                        .step_error_s = std::hypot(together * input.times.slowest_error_s, alone * time_s.error),
                        .kept_error = alone * kept.error,
                        .sync_step_error_s = input.times.slowest_error_s,
                        .is_sampled = true};
  prediction.drop_rate = 1 - prediction.kept;
  return {{prediction}};
}

bool read_timed_rounds(Settings& settings, TimedRounds& rounds, const WorkInBudget& work) {
  using From = TimedRounds::CountedFrom;
  constexpr Step most = 1'000'000'000'000;
  const auto seconds = settings.optional_number(
      {"sync_seconds", "Time after which a round ends with a worker's step (A-EDiT); either it or period.", "s",
       "`period` is given"},
      Range{.low = 0, .low_open = true, .high_open = true});
  constexpr std::array keys = {"counted_from", "minimum_steps", "warmup_steps"};
  for (const char* key : keys)
    if (!seconds && settings.has(key))
      settings.fault(key, "must not stand where rounds end by steps: give sync_seconds instead of period");
  if (seconds) rounds.length = from_seconds(*seconds);
  rounds.counted_from = settings.choice(
      {"counted_from", "Where that time begins: with the last synchronisation's end, or the worker's arrival at it."},
      {{"end", From::end}, {"arrival", From::arrival}}, From::end);
  rounds.minimum_steps = settings.integer(
      {"minimum_steps", "Of all workers together, with fewer of which a round goes on for another such time.", "steps"},
      1, most.value(), rounds.minimum_steps);
  if (seconds) work.check(settings, "minimum_steps", rounds.minimum_steps);
  rounds.warmup_steps = settings.integer({"warmup_steps", "Of synchronous SGD before the first such round.", "steps"},
                                         0, most.value(), 0);
  if (!seconds)
    for (const char* key : keys) settings.leave_out(key);
  return seconds.has_value();
}

}  // namespace syncopate
