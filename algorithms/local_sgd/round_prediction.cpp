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

// One average within a group.
double group_average_s(int first, int count, const Bytes& payload, const PredictionInput& input) {
  if (count == 1) return 0;
  return to_seconds(input.network.collective(
      {.operation = Operation::all_reduce, .members = count, .payload = payload, .first = Rank{first}}));
}

Group group_of(int first, int count, std::int64_t averages, Step group_period, Step rest, const Bytes& payload,
               const PredictionInput& input) {
  const auto slowest = [&](Step steps) {
    return law_of_maximum(normal_sums(input.times, static_cast<double>(steps.value()), first, count));
  };
  Group group{.law = slowest(rest)};
  if (averages == 0) return group;
  const NormalTime one = slowest(group_period);
  const auto times = static_cast<double>(averages);
  group.communication_s = times * group_average_s(first, count, payload, input);
  group.law.mean += times * one.mean + group.communication_s;
  group.law.deviation = std::hypot(group.law.deviation, std::sqrt(times) * one.deviation);
  return group;
}

// The sum over the whole run of what its rounds take; none where their lengths are not known beforehand.
std::optional<Prediction> sum_of_rounds(const SyncPeriod& period, const RoundFormulas& formulas,
                                        const TimeOfRound& round, const PredictionInput& input) {
  constexpr int most_rounds = 1'000'000;
  constexpr double no_limit = 1e15;
  const double samples_per_step =
      static_cast<double>(input.samples_per_micro_batch) * input.workers * input.micro_batches;
  const double steps = input.budget.steps ? static_cast<double>(input.budget.steps->value()) : no_limit;
  const double whole_steps =  // in samples
      input.budget.samples ? static_cast<double>(*input.budget.samples) / samples_per_step : no_limit;
  if (input.budget.bytes && std::min(steps, whole_steps) == no_limit) return std::nullopt;
  std::map<Step, std::optional<RoundTime>> rounds_of;  // by their length
  const auto round_of_length = [&](Step length) -> const std::optional<RoundTime>& {
    const auto [known, is_new] = rounds_of.try_emplace(length);
    if (is_new) known->second = round(length);
    return known->second;
  };
  Prediction sum;
  sum.kept = 0;
  Step done{};
  double kept_of_step = 1;  // as in the last round
  const double seconds = input.budget.seconds.value_or(1e300);
  const auto steps_left = [&] {
    return std::min(steps - static_cast<double>(done.value()), std::ceil((whole_steps - sum.kept) / kept_of_step));
  };
  for (int rounds = 0; steps_left() > 0 && sum.step_time_s < seconds; ++rounds) {
    Step length = period.at(done, input.learning_rate.at(done), Step{static_cast<Step::Rep>(steps_left())});
    if (length > longest_round || rounds == most_rounds) return std::nullopt;
    std::optional<RoundTime> known = round_of_length(length);
    const double left_s = seconds - sum.step_time_s;
    if (const double computing_s = known ? known->time_s - known->average_s : 0; computing_s > left_s) {
      length = static_cast<Step::Rep>(std::ceil(static_cast<double>(length.value()) * left_s / computing_s));
      known = round_of_length(length);  // workers begin no further step once the budget is over
    }
    if (!known) return std::nullopt;
    RoundTime one = *known;
    if (done < period.synchronous_steps()) {  // gradients go around, without moments
      one.time_s += input.all_reduce_s() - one.communication_s;
      one.communication_s = input.all_reduce_s();
    }
    const double further_s = formulas.further_communication_s ? formulas.further_communication_s(done + length) : 0.0;
    sum.step_time_s += one.time_s + further_s;
    sum.communication_s += one.communication_s + further_s;
    kept_of_step = one.kept;
    if (!(kept_of_step > 0)) return std::nullopt;
    sum.kept += one.kept * static_cast<double>(length.value());
    sum.step_error_s += one.error_s;  // of one sample, so that errors may all go the same way
    sum.kept_error += one.kept_error * static_cast<double>(length.value());
    done += length;
  }
  const auto taken = static_cast<double>(done.value());
  for (double* total : {&sum.step_time_s, &sum.communication_s, &sum.kept, &sum.step_error_s, &sum.kept_error})
    *total /= taken;
  sum.drop_rate = 1 - sum.kept;
  return sum;
}

RoundTime round_of(double computing_s, double average_s) { return {computing_s + average_s, average_s, average_s}; }

RoundTime round_of(const SampledRounds& computing, double average_s) {
  return {computing.time_s.mean + average_s,
          average_s,
          average_s,
          computing.kept.mean,
          computing.time_s.error,
          computing.kept.error};
}

// By drawn steps; sums of more of them than were drawn are left to the central limit, where it holds.
TimeOfRound sampled_or(const TimeOfRound& normal, std::function<std::optional<RoundTime>(Step)> sampled,
                       const PredictionInput& input) {
  return [=, has_variance = input.times.has_variance](Step length) {
    const auto time = sampled(length);
    return time || !has_variance ? time : normal(length);
  };
}

std::string why_none(const PredictionInput& input) {
  if (!input.times.slowest_s && !input.times.has_variance) return has_no_variance;
  if (input.times.has_variance)
    return "how long its rounds are follows from how the run goes, or they are too long or too many";
  return "its steps have no variance, so that its rounds must be drawn: they are too long or too many for that, or "
         "how long they are follows from how the run goes";
}

std::vector<Prediction> predictions_of(const SyncPeriod& period, const RoundFormulas& formulas,
                                       const PredictionInput& input) {
  std::vector<Prediction> predictions;
  if (input.times.has_variance)
    if (auto normal = sum_of_rounds(period, formulas, formulas.by_normal_sums, input)) {
      normal->formula = formulas.of_normal_sums;
      normal->sync_step_time_s = expected_slowest_sum(input.times) + input.all_reduce_s();
      predictions.push_back(*normal);
    }
  if (!input.times.slowest_s) return predictions;
  auto sampled = sum_of_rounds(period, formulas, formulas.by_sampled_sums, input);
  if (!sampled || (!predictions.empty() && !misses(predictions.front(), *sampled))) return predictions;
  sampled->formula = formulas.of_sampled_sums;
  sampled->is_sampled = true;
  sampled->sync_step_time_s = *input.times.slowest_s + input.all_reduce_s();
  sampled->sync_step_error_s = input.times.slowest_error_s;
  predictions.push_back(*sampled);
  return predictions;
}

}  // namespace

Forecast predict_rounds(const SyncPeriod& period, const RoundFormulas& formulas, const PredictionInput& input) {
  return Forecast::of(predictions_of(period, formulas, input), why_none(input));
}

Forecast predict_rounds(const SyncPeriod& period, const AveragePolicy& policy, const PredictionInput& input) {
  RoundFormulas formulas = rounds_until({}, policy, input);
  formulas.of_normal_sums = "rounds of normal sums";
  formulas.of_sampled_sums = "rounds of sampled sums";
  return predict_rounds(period, formulas, input);
}

Communicated communicated_in_rounds(const SyncPeriod& period, const AveragePolicy& policy,
                                    const CommunicationInput& input) {
  return communicated_in_groups(period, {.size = 1, .period = 1}, policy, input);
}

Communicated communicated_in_groups(const SyncPeriod& period, const Groups& groups, const AveragePolicy& policy,
                                    const CommunicationInput& input) {
  std::int64_t of_groups = 0;  // bytes, when all groups average once
  for (int first = 0; first < input.workers; first += groups.size)
    of_groups +=
        CommunicationInput::all_reduce(std::min(groups.size, input.workers - first), input.payload_of(policy)).value();
  Communicated sum;
  for (Step done{}; done < input.steps;) {
    const Step length = period.at(done, input.learning_rate.at(done), input.steps - done);
    const bool is_gradient = done < period.synchronous_steps();
    sum.bytes += is_gradient ? input.of_gradient() : input.of_average(policy);
    if (!is_gradient) sum.bytes += Bytes{(length.value() - 1) / groups.period.value() * of_groups};
    ++sum.rounds;
    done += length;
  }
  return sum;
}

RoundFormulas rounds_in_groups(const Groups& groups, const AveragePolicy& policy, const PredictionInput& input) {
  const auto averages_in = [=](Step length) { return (length.value() - 1) / groups.period.value(); };
  const double average_s = input.average_s(policy);
  const auto normal = [=, &input](Step length) -> std::optional<RoundTime> {
    const std::int64_t averages = averages_in(length);
    if (averages == 0)
      return round_of(expected_slowest_sum(input.times, static_cast<double>(length.value())), average_s);
    const Step rest = length - Step{averages * groups.period.value()};
    RoundTime round{.communication_s = average_s, .average_s = average_s};
    std::vector<NormalTime> laws;
    for (int first = 0; first < input.workers; first += groups.size) {
      const int count = std::min(groups.size, input.workers - first);
      const Group group = group_of(first, count, averages, groups.period, rest, input.averaged_bytes(policy), input);
      laws.push_back(group.law);
      round.communication_s += group.communication_s * count / input.workers;
    }
    round.time_s = expected_maximum(laws) + average_s;
    return round;
  };
  const auto sampled = [=, &input](Step length) -> std::optional<RoundTime> {
    const std::int64_t averages = averages_in(length);
    RoundTime round{.communication_s = average_s, .average_s = average_s};
    std::vector<double> averages_s;  // of each group, in the whole round
    for (int first = 0; first < input.workers; first += groups.size) {
      const int count = std::min(groups.size, input.workers - first);
      averages_s.push_back(group_average_s(first, count, input.averaged_bytes(policy), input) *
                           static_cast<double>(averages));
      round.communication_s += averages_s.back() * count / input.workers;
    }
    const auto time_s = sample_rounds(input.times, length.value(), [&](std::size_t begin) {
      double slowest_s = 0;
      for (std::size_t g = 0; g < averages_s.size(); ++g) {
        const int first = static_cast<int>(g) * groups.size, end = std::min(first + groups.size, input.workers);
        double group_s = averages_s[g];
        for (std::int64_t done = 0; done < length.value(); done += groups.period.value())
          group_s += slowest_sum(input.times, first, end, begin + static_cast<std::size_t>(done),
                                 static_cast<std::size_t>(std::min(groups.period.value(), length.value() - done)));
        slowest_s = std::max(slowest_s, group_s);
      }
      return slowest_s;
    });
    if (!time_s) return std::nullopt;
    round.time_s = time_s->mean + average_s;
    round.error_s = time_s->error;
    return round;
  };
  return {"rounds of groups' normal sums", normal, "rounds of groups' sampled sums",
          sampled_or(normal, sampled, input)};
}

RoundFormulas rounds_until(const Limits& limits, const AveragePolicy& policy, const PredictionInput& input) {
  const double average_s = input.average_s(policy);
  const auto normal = [=, &input](Step length) -> std::optional<RoundTime> {
    const auto steps = static_cast<double>(length.value());
    std::vector<NormalTime> sums = normal_sums(input.times, 1);
    for (NormalTime& sum : sums) {
      const NormalTime step = length == Step{1} ? sum : law_until(sum, limits.step_s);
      sum = {steps * step.mean, std::sqrt(steps) * step.deviation, sum.workers};
    }
    RoundTime round = round_of(expected_maximum(sums, std::min(limits.round_s, steps * limits.step_s)), average_s);
    if (!std::isinf(limits.round_s)) round.kept = expected_share_done(input.times, length, limits.round_s);
    if (!std::isinf(limits.step_s)) round.kept = expected_share_done(input.times, 1, limits.step_s);
    return round;
  };
  const auto sampled = [=, &input](Step length) -> std::optional<RoundTime> {
    const auto rounds = sample_rounds(input.times, length.value(), limits);
    return rounds ? std::optional(round_of(*rounds, average_s)) : std::nullopt;
  };
  return {"Eq. 5 over rounds of normal sums", normal, "rounds of sampled sums until the threshold",
          sampled_or(normal, sampled, input)};
}

}  // namespace syncopate
