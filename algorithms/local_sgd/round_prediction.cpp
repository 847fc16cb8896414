#include "algorithms/local_sgd/round_prediction.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

namespace syncopate {
namespace {

constexpr Step longest_round = 1'000'000;  // longer ones end with a budget that does not count steps

// What one group of workers waits for.
struct Group {
  NormalTime law{};            // of the group's round: the last sum too
  double communication_s = 0;  // of it
};

Group group_of(int first, int count, std::int64_t averages, Step group_period, Step rest, const Bytes& payload,
               const PredictionInput& input) {
  const auto slowest = [&](Step steps) {
    return law_of_maximum(normal_sums(input.times, static_cast<double>(steps.value()), first, count));
  };
  const CollectiveCall call{
      .operation = Operation::all_reduce, .members = count, .payload = payload, .first = Rank{first}};
  Group group{.law = slowest(rest)};
  if (averages == 0) return group;
  const NormalTime one = slowest(group_period);
  const auto times = static_cast<double>(averages);
  if (count > 1) group.communication_s = times * to_seconds(input.network.collective(call));
  group.law.mean += times * one.mean + group.communication_s;
  group.law.deviation = std::hypot(group.law.deviation, std::sqrt(times) * one.deviation);
  return group;
}

}  // namespace

std::vector<Prediction> predict_rounds(const SyncPeriod& period, const std::string& formula, const TimeOfRound& round,
                                       const PredictionInput& input) {
  constexpr int most_rounds = 1'000'000;
  constexpr double no_limit = 1e15;
  const double samples_per_step =
      static_cast<double>(input.samples_per_micro_batch) * input.workers * input.micro_batches;
  const double steps =
      std::min(input.budget.steps ? static_cast<double>(input.budget.steps->value()) : no_limit,
               input.budget.samples ? static_cast<double>(*input.budget.samples) / samples_per_step : no_limit);
  if (input.budget.bytes && steps == no_limit) return {};
  const Step end = static_cast<Step::Rep>(std::ceil(steps));
  std::map<Step, RoundTime> rounds_of;  // by their length
  double time_s = 0, communication_s = 0, kept = 0;
  Step done{};
  for (int rounds = 0; done < end && time_s < input.budget.seconds.value_or(1e300); ++rounds) {
    const Step length = period.at(done, input.learning_rate.at(done), end - done);
    if (length > longest_round || rounds == most_rounds) return {};
    const auto [known, is_new] = rounds_of.try_emplace(length);
    if (is_new) known->second = round(length);
    time_s += known->second.time_s;
    communication_s += known->second.communication_s;
    kept += known->second.kept * static_cast<double>(length.value());
    done += length;
  }
  const auto taken = static_cast<double>(done.value());
  return {{.formula = formula,
           .step_time_s = time_s / taken,
           .communication_s = communication_s / taken,
           .kept = kept / taken,
           .drop_rate = 1 - kept / taken,
           .sync_step_time_s = expected_slowest_sum(input.times) + input.all_reduce_s()}};
}

std::vector<Prediction> predict_rounds(const SyncPeriod& period, const AveragePolicy& policy,
                                       const PredictionInput& input) {
  const double average_s = input.average_s(policy);
  const auto round = [&](Step length) {
    const double slowest_s = expected_slowest_sum(input.times, static_cast<double>(length.value()));
    return RoundTime{slowest_s + average_s, average_s};
  };
  return predict_rounds(period, "rounds of normal sums", round, input);
}

RoundTime round_in_groups(Step length, int group_size, Step group_period, const AveragePolicy& policy,
                          const PredictionInput& input) {
  const std::int64_t averages = (length.value() - 1) / group_period.value();
  const Step rest = length - Step{averages * group_period.value()};
  const double average_s = input.average_s(policy);
  if (averages == 0) {
    const double slowest_s = expected_slowest_sum(input.times, static_cast<double>(length.value()));
    return {slowest_s + average_s, average_s};
  }
  RoundTime round{.communication_s = average_s};
  std::vector<NormalTime> groups;
  for (int first = 0; first < input.workers; first += group_size) {
    const int count = std::min(group_size, input.workers - first);
    const Group group = group_of(first, count, averages, group_period, rest, input.averaged_bytes(policy), input);
    groups.push_back(group.law);
    round.communication_s += group.communication_s * count / input.workers;
  }
  round.time_s = expected_maximum(groups) + average_s;
  return round;
}

RoundTime round_until(double threshold_s, Step length, const AveragePolicy& policy, const PredictionInput& input) {
  const double average_s = input.average_s(policy);
  const auto sums = normal_sums(input.times, static_cast<double>(length.value()), 0, input.workers);
  return {expected_maximum(sums, threshold_s) + average_s, average_s,
          expected_share_done(input.times, length, threshold_s)};
}

RoundTime round_of_steps_until(double threshold_s, Step length, const AveragePolicy& policy,
                               const PredictionInput& input) {
  if (length == Step{1}) return round_until(threshold_s, length, policy, input);
  const double average_s = input.average_s(policy), steps = static_cast<double>(length.value());
  std::vector<NormalTime> sums = normal_sums(input.times, 1, 0, input.workers);
  for (NormalTime& sum : sums) {
    const NormalTime step = law_until(sum, threshold_s);
    sum = {steps * step.mean, std::sqrt(steps) * step.deviation, sum.workers};
  }
  return {expected_maximum(sums, steps * threshold_s) + average_s, average_s,
          expected_share_done(input.times, 1, threshold_s)};
}

}  // namespace syncopate
