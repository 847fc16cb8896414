#include "algorithms/local_sgd/round_prediction.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <span>

namespace syncopate {

namespace {

constexpr Step longest_round = 1'000'000;        // longer ones end with a budget that does not count steps
constexpr std::int64_t most_work = 200'000'000;  // workers times rounds, or fragments
constexpr double no_limit = 1e15;
constexpr const char* unknown_rounds = "how long its rounds are follows from how the run goes, or they are too many";

// The wait of one group of workers.
struct Group {
  NormalTime law{};            // of the group's round, with the last sum
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

// Sums of a worker's successive drawn steps; after the last comes the first again. Two look-ups per sum.
class DrawnSums {
 public:
  explicit DrawnSums(const SampledTimes& times) : drawn_(times.drawn_steps()), sums_(times.step_times.size()) {
    for (std::size_t i = 0; i < sums_.size(); ++i)
      sums_[i] = times.step_times[i] + (i % drawn_ == 0 ? 0 : sums_[i - 1]);
  }
  double of(std::size_t worker, Step first, Step count) const {
    return until(worker, first + count) - until(worker, first);
  }
  Step drawn() const { return static_cast<Step::Rep>(drawn_); }
  // How many steps workers begin in so many seconds, on average.
  Step begun_within(double seconds) const {
    double sum_s = 0;
    for (std::size_t last = drawn_ - 1; last < sums_.size(); last += drawn_) sum_s += sums_[last];
    return static_cast<Step::Rep>(std::ceil(seconds * static_cast<double>(sums_.size()) / sum_s));
  }

 private:
  double until(std::size_t worker, Step step) const {
    const auto steps = static_cast<std::size_t>(step.value());
    const std::size_t times = steps / drawn_, rest = steps % drawn_;
    const double* const own = &sums_[worker * drawn_];
    return static_cast<double>(times) * own[drawn_ - 1] + (rest == 0 ? 0 : own[rest - 1]);
  }
  std::size_t drawn_;
  std::vector<double> sums_;
};

// The steps that the budget allows; no_limit: it counts neither steps nor samples.
double steps_of_budget(const PredictionInput& input) {
  const double samples_per_step =
      static_cast<double>(input.samples_per_micro_batch) * input.workers * input.micro_batches;
  return std::min(input.budget.steps ? static_cast<double>(input.budget.steps->value()) : no_limit,
                  input.budget.samples ? static_cast<double>(*input.budget.samples) / samples_per_step : no_limit);
}

// A run of drawn steps.
struct DrawnRun {
  Step taken{};
  double end_s = 0;
  double communication_s = 0;    // of all workers, without waiting for the latest
  std::vector<double> rounds{};  // what each took
};

Prediction prediction_of(const DrawnRun& run, std::string formula, const DrawnSums& sums,
                         const PredictionInput& input) {
  const auto taken = static_cast<double>(run.taken.value());
  const double drawn = std::min(1.0, static_cast<double>(sums.drawn().value()) / taken);  // of the run, without repeats
  Prediction prediction{.formula = std::move(formula),
                        .step_time_s = run.end_s / taken,
                        .communication_s = run.communication_s / input.workers / taken,
                        .drop_rate = 0,
                        .sync_step_time_s = *input.times.slowest_s + input.all_reduce_s(),
                        .sync_step_error_s = input.times.slowest_error_s,
                        .is_sampled = true};
  if (run.rounds.size() > 2) {  // the first one waits for fewer averages, or none
    const std::span<const double> usual = std::span(run.rounds).subspan(1);
    prediction.step_error_s = mean_of(usual).error * static_cast<double>(usual.size()) / taken / std::sqrt(drawn);
  }
  return prediction;
}

// The workers' clocks.
struct Clocks {
  std::vector<double> at;        // where each one's round begins
  double latest = 0;             // of these
  bool is_under_way = false;     // an average that began then
  double communication_s = 0;    // of all workers, without waiting for the latest
  std::vector<double> rounds{};  // what each took, from the latest beginning to the latest
};

void take_round(Clocks& clocks, const DrawnSums& sums, Step first, Step count, double average_s) {
  const double comes = clocks.is_under_way ? clocks.latest + average_s : 0;
  const double latest_before = clocks.latest;
  for (std::size_t w = 0; w < clocks.at.size(); ++w) {
    const double end = clocks.at[w] + sums.of(w, first, count);
    clocks.at[w] = std::max(end, comes);
    clocks.communication_s += std::max(0.0, comes - std::max(end, latest_before));
    clocks.latest = std::max(clocks.latest, clocks.at[w]);
  }
  clocks.is_under_way = true;
  clocks.rounds.push_back(clocks.latest - latest_before);
}

// All wait for the latest, and for the sum.
void meet(Clocks& clocks, double time_s) {
  clocks.latest += time_s;
  clocks.communication_s += time_s * static_cast<double>(clocks.at.size());
  std::ranges::fill(clocks.at, clocks.latest);
  clocks.is_under_way = false;
}

std::optional<Prediction> drawn_rounds(const SyncPeriod& period, const AveragePolicy& policy,
                                       const PredictionInput& input) {
  const double steps = steps_of_budget(input);
  if (input.budget.bytes && steps == no_limit) return std::nullopt;
  const DrawnSums sums(input.times);
  const double average_s = input.average_s(policy);
  const Step end = static_cast<Step::Rep>(std::ceil(steps));
  Clocks clocks{.at = std::vector<double>(static_cast<std::size_t>(input.workers))};
  Step done{};
  for (std::int64_t work = 0; done < end && clocks.latest < input.budget.seconds.value_or(1e300);) {
    Step left = end - done;
    if (input.budget.seconds) left = std::min(left, sums.begun_within(*input.budget.seconds - clocks.latest));
    const Step length = period.at(done, input.learning_rate.at(done), left);
    if (length > longest_round || (work += input.workers) > most_work) return std::nullopt;
    take_round(clocks, sums, done, length, average_s);
    if (done < period.synchronous_steps()) meet(clocks, input.all_reduce_s());
    done += length;
  }
  if (clocks.is_under_way) meet(clocks, average_s);
  return prediction_of({done, clocks.latest, clocks.communication_s, clocks.rounds},
                       "rounds of sampled sums, averages one round late", sums, input);
}

// The workers' clocks, and the averages of fragments that are under way.
class StreamingClocks {
 public:
  StreamingClocks(int workers, const DrawnSums& sums) : sums_(sums), at_(static_cast<std::size_t>(workers)) {}

  Step step() const { return step_; }
  double latest() const { return *std::ranges::max_element(at_); }
  double communication_s() const { return communication_s_; }
  bool are_under_way() const { return !under_way_.empty(); }
  Step next_due() const { return under_way_.front().due; }

  void train_until(Step step) {
    for (std::size_t w = 0; w < at_.size(); ++w) at_[w] += sums_.of(w, step_, step - step_);
    step_ = step;
  }
  void start(double average_s, Step due) {
    const double begin = latest();
    network_free_at_ = std::max(begin, network_free_at_) + average_s;
    under_way_.push_back({due, begin, network_free_at_});
  }
  void finish_next() {
    const auto [due, begin, end] = under_way_.front();
    under_way_.pop_front();
    for (double& at : at_) {
      communication_s_ += std::max(0.0, end - std::max(at, begin));
      at = std::max(at, end);
    }
  }

 private:
  struct UnderWay {
    Step due;
    double begin;  // where all have started it
    double end;
  };
  const DrawnSums& sums_;
  std::vector<double> at_;
  Step step_{};
  double network_free_at_ = 0;
  double communication_s_ = 0;  // of all workers, without waiting for the latest
  std::deque<UnderWay> under_way_{};
};

void take_round(StreamingClocks& clocks, const Fragments& fragments, Step round, Step delay,
                std::span<const double> average_s) {
  const Step begin = clocks.step();
  for (int fragment = 0; fragment < fragments.count(); ++fragment) {
    const Step turn = begin + fragments.offset(fragment, round);
    while (clocks.are_under_way() && clocks.next_due() < turn) {
      clocks.train_until(clocks.next_due());
      clocks.finish_next();
    }
    clocks.train_until(turn);
    clocks.start(average_s[static_cast<std::size_t>(fragment)], turn + delay);
    while (clocks.are_under_way() && clocks.next_due() <= turn) clocks.finish_next();
  }
}

// Buffers and moments go with the first fragment. Each compressed average is one exchange.
std::vector<double> times_of(const Fragments& fragments, const AveragePolicy& policy, const PredictionInput& input) {
  std::vector<double> times;
  for (const Exchange& exchange : input.average_exchanges) times.push_back(input.exchanges_s({exchange}));
  if (!times.empty()) return times;
  for (int fragment = 0; fragment < fragments.count(); ++fragment) {
    Bytes payload = fragments.slice(fragment).bytes_of(input.parameter_bytes);
    if (fragment == 0) payload += Bytes{input.averaged_bytes(policy).value() - input.parameter_bytes.value()};
    times.push_back(to_seconds(input.network.all_reduce(input.workers, payload)));
  }
  return times;
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

Forecast predict_overlapped_rounds(const SyncPeriod& period, const AveragePolicy& policy,
                                   const PredictionInput& input) {
  if (!input.times.slowest_s || input.times.step_times.empty()) return Forecast::none(not_all_drawn);
  const auto prediction = drawn_rounds(period, policy, input);
  if (!prediction) return Forecast::none(unknown_rounds);
  return {{*prediction}};
}

Forecast predict_fragments(const SyncPeriod& period, const Fragments& fragments, Step delay,
                           const AveragePolicy& policy, const PredictionInput& input) {
  if (!input.times.slowest_s || input.times.step_times.empty()) return Forecast::none(not_all_drawn);
  const double steps = steps_of_budget(input);
  if (input.budget.bytes && steps == no_limit) return Forecast::none(unknown_rounds);
  const DrawnSums sums(input.times);
  const std::vector<double> average_s = times_of(fragments, policy, input);
  const std::vector<double> gradient_s = {input.all_reduce_s()};
  const Step end = static_cast<Step::Rep>(std::ceil(steps));
  StreamingClocks clocks(input.workers, sums);
  std::vector<double> rounds;
  double begun = 0;
  for (std::int64_t work = 0; clocks.step() < end && begun < input.budget.seconds.value_or(1e300);) {
    const Step done = clocks.step();
    Step left = end - done;
    if (input.budget.seconds) left = std::min(left, sums.begun_within(*input.budget.seconds - begun));
    const Step length = period.at(done, input.learning_rate.at(done), left);
    work += static_cast<std::int64_t>(input.workers) * fragments.count();
    if (length > longest_round || work > most_work) return Forecast::none(unknown_rounds);
    if (done < period.synchronous_steps())
      take_round(clocks, Fragments(1), length, {}, gradient_s);
    else
      take_round(clocks, fragments, length, delay, average_s);
    rounds.push_back(clocks.latest() - begun);
    begun = clocks.latest();
  }
  while (clocks.are_under_way()) clocks.finish_next();
  return {{prediction_of({clocks.step(), clocks.latest(), clocks.communication_s(), rounds},
                         "rounds of sampled sums, fragments averaged meanwhile", sums, input)}};
}

}  // namespace syncopate
