#include "algorithms/local_sgd/round_prediction.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "workers/theory/sampled_times.hpp"

namespace syncopate {

namespace {

// Returns the expected time in which the slowest worker takes `length` steps; none if unknown.
using TimeOfSteps = std::function<std::optional<SampledMean>(Step length)>;

// Predicts the mean step time over all rounds of the run. None if the lengths of rounds are not known in advance, or if
// the time of a round is unknown.
std::optional<Prediction> mean_of_rounds(const SyncPeriod& period, double average_s, const TimeOfSteps& slowest,
                                         const PredictionInput& input) {
  constexpr Step longest_round = 1'000'000;  // longer rounds have no fixed end, because the budget does not count steps
  constexpr int most_rounds = 1'000'000;
  constexpr double endless = std::numeric_limits<double>::infinity();
  const auto samples_per_step =
      static_cast<double>(input.samples_per_micro_batch) * input.workers * input.micro_batches;
  double steps = input.budget.steps ? static_cast<double>(input.budget.steps->value()) : endless;
  if (input.budget.samples)
    steps = std::min(steps, std::ceil(static_cast<double>(*input.budget.samples) / samples_per_step));
  const double seconds = input.budget.seconds.value_or(endless);
  if (input.budget.bytes && steps == endless) return std::nullopt;
  std::map<Step, std::optional<SampledMean>> times_of;  // by length of a round
  const auto time_of = [&](Step length) -> const std::optional<SampledMean>& {
    const auto [known, is_new] = times_of.try_emplace(length);
    if (is_new) known->second = slowest(length);
    return known->second;
  };
  Prediction sum;
  double communication_s = 0, done = 0;
  for (int rounds = 0; done < steps && sum.step_time_s < seconds; ++rounds) {
    const Step begin = static_cast<Step::Rep>(done);
    const Step left = static_cast<Step::Rep>(std::min(steps - done, 1e15));
    Step length = period.at(begin, input.learning_rate.at(begin), left);
    if (length > longest_round || rounds == most_rounds) return std::nullopt;
    std::optional<SampledMean> time = time_of(length);
    if (const double left_s = seconds - sum.step_time_s; time && time->mean > left_s) {
      length = static_cast<Step::Rep>(std::ceil(static_cast<double>(length.value()) * left_s / time->mean));
      time = time_of(length);  // workers begin no further step once the budget is used up
    }
    if (!time) return std::nullopt;
    const double exchange_s = begin < period.synchronous_steps() ? input.all_reduce_s() : average_s;
    sum.step_time_s += time->mean + exchange_s;
    communication_s += exchange_s;
    sum.step_error_s += time->error;  // all times come from one sample, so their errors may have the same sign
    done += static_cast<double>(length.value());
  }
  sum.step_time_s /= done;
  sum.step_error_s /= done;
  sum.communication_s = communication_s / done;
  sum.drop_rate = 0;
  return sum;
}

std::string why_none(const PredictionInput& input) {
  if (!input.times.slowest_s && !input.times.has_variance) return has_no_variance;
  if (input.times.has_variance)
    return "the lengths of its rounds depend on the run, or its rounds are too long or too many";
  return "its steps have no variance, so that its rounds must be drawn: they are too long or too many for that, or "
         "their lengths depend on the run";
}

}  // namespace

Forecast predict_rounds(const SyncPeriod& period, const AveragePolicy& policy, const PredictionInput& input) {
  const double average_s = input.average_s(policy);
  const SampledTimes& times = input.times;
  const TimeOfSteps normal = [&](Step length) {
    return std::optional(SampledMean{expected_slowest_sum(times, static_cast<double>(length.value()))});
  };
  // For rounds with more steps than were drawn, uses the normal approximation if step times have a variance.
  const TimeOfSteps sampled = [&](Step length) -> std::optional<SampledMean> {
    const auto drawn = sampled_slowest_sum(times, length);
    return drawn || !times.has_variance ? drawn : normal(length);
  };
  std::vector<Prediction> predictions;
  if (times.has_variance)
    if (auto by_law = mean_of_rounds(period, average_s, normal, input)) {
      by_law->formula = "rounds of normal sums";
      by_law->sync_step_time_s = expected_slowest_sum(times) + input.all_reduce_s();
      predictions.push_back(*by_law);
    }
  if (times.slowest_s)
    if (auto by_steps = mean_of_rounds(period, average_s, sampled, input);
        by_steps && (predictions.empty() || misses(predictions.front(), *by_steps))) {
      by_steps->formula = "rounds of sampled sums";
      by_steps->is_sampled = true;
      by_steps->sync_step_time_s = *times.slowest_s + input.all_reduce_s();
      by_steps->sync_step_error_s = times.slowest_error_s;
      predictions.push_back(*by_steps);
    }
  return Forecast::of(std::move(predictions), why_none(input));
}

Communicated communicated_in_rounds(const SyncPeriod& period, const AveragePolicy& policy,
                                    const CommunicationInput& input) {
  return communicated_in_groups(period, {.size = 1, .period = 1}, policy, input);
}

Communicated communicated_in_groups(const SyncPeriod& period, const Groups& groups, const AveragePolicy& policy,
                                    const CommunicationInput& input) {
  std::int64_t of_groups = 0;  // bytes when all groups average once
  for (int first = 0; first < input.workers; first += groups.size)
    of_groups +=
        CommunicationInput::all_reduce(std::min(groups.size, input.workers - first), input.payload_of(policy)).value();
  Communicated sum;
  for (Step done{}; done < input.steps;) {
    const Step length = period.at(done, input.learning_rate.at(done), input.steps - done);
    const bool is_gradient = done < period.synchronous_steps();
    sum.bytes += is_gradient ? input.of_gradient() : input.of_average(period.due(done + length, input.steps, policy));
    if (!is_gradient) sum.bytes += Bytes{(length.value() - 1) / groups.period.value() * of_groups};
    ++sum.rounds;
    done += length;
  }
  return sum;
}

}  // namespace syncopate
