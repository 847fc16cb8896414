#include "algorithms/local_sgd/rounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "workers/base/process.hpp"
#include "workers/theory/sampled_times.hpp"

namespace syncopate {

namespace {

StatePolicy read_moment(Settings& settings, const Key& key, StatePolicy fallback, std::string_view words = {}) {
  return settings.choice(
      key, {{"keep", StatePolicy::keep}, {"average", StatePolicy::average}, {"reset", StatePolicy::reset}}, fallback,
      words);
}

// Returns the policies with these weights. Reports a fault if samples are not allowed as weights.
StatePolicies with_weights(Settings& settings, const AlgorithmContext& context, ModelWeights weights,
                           StatePolicies policies) {
  policies.weights = weights;
  if (weights != ModelWeights::samples) return policies;
  if (!context.divides_data)
    settings.fault("weights",
                   "must be \"equal\" unless training.partition divides the data among the workers: without it all "
                   "have equally many samples");
  if (settings.has("compression"))
    settings.fault("weights", "must be \"equal\" with a table `compression`: compressed averages have equal weights");
  return policies;
}

StatePolicies with_weights(Settings& settings, const AlgorithmContext& context, const StatePolicies& policies) {
  const auto weights = settings.choice(
      {"weights", "Weights of models in an average: equal, or by the workers' training samples (FedAvg)."},
      {{"equal", ModelWeights::equal}, {"samples", ModelWeights::samples}}, ModelWeights::equal);
  return with_weights(settings, context, weights, policies);
}

// The data's next `count` micro-batches, spread evenly over the workers and taken from as few steps as possible.
std::vector<MicroBatch> micro_batches_to_come(const Participant& participant, int count) {
  const int workers = participant.size();
  std::vector<MicroBatch> result;
  for (int i = 0; i < count; ++i) {
    const int turn = i / workers;
    result.push_back({Rank{i % workers}, participant.step() + turn / participant.micro_batches(),
                      turn % participant.micro_batches()});
  }
  return result;
}

}  // namespace

std::optional<LearningRate> LocalPhase::learning_rate_over(Step steps) const {
  if (!learning_rate) return std::nullopt;
  LearningRate::Options options = *learning_rate;
  if (options.shape == LearningRate::Shape::constant) return LearningRate(options);
  if (steps < Step{1}) return std::nullopt;
  options.total_steps = steps;
  return LearningRate(options);
}

LocalPhase read_local_phase(Settings& settings, const AlgorithmContext& context) {
  LocalPhase phase;
  if (!settings.has("local_phase")) return phase;
  Settings table = settings.section({"local_phase", "Overrides for the phase in which workers train alone (SWAP)."});
  phase.micro_batches = table.optional_integer(
      {"micro_batches", "Micro-batches in a worker's step.", "micro-batches", "as before"}, 1, 1'000'000);
  using Sampling = LocalPhase::Sampling;
  phase.sampling =
      table.choice({"sampling", "Whether a worker takes its part of each epoch, or all samples in its own order."},
                   {{"shards", Sampling::shards}, {"own-order", Sampling::own}}, phase.sampling);
  if (phase.sampling == Sampling::own && !context.has_epochs) table.fault("sampling", "needs a data set");
  if (phase.sampling == Sampling::own && context.divides_data)
    table.fault("sampling", "must be \"shards\" if training.partition divides the data among the workers");
  phase.first_step = context.first_step;
  phase.steps_per_epoch = context.steps_per_epoch.value_or(Step{1});
  using Shape = LearningRate::Shape;
  if (const auto peak = table.optional_number({"peak", "The phase's first learning rate.", "", "the run's schedule"},
                                              Range::positive())) {
    LearningRate::Options rate;
    rate.peak = *peak;
    rate.shape = table.choice({"schedule", "How the learning rate goes from `peak` to `final`."},
                              {{"constant", Shape::constant}, {"linear", Shape::linear}, {"cosine", Shape::cosine}},
                              Shape::constant);
    rate.final = table.number({"final", "Last learning rate of linear and cosine."}, Range::at_least(0), 0.0);
    if (rate.shape != Shape::constant && !context.counts_steps)
      table.fault("schedule", "must be \"constant\" if the budget is not in steps or epochs: others need an end");
    phase.learning_rate = rate;
  }
  return phase;
}

std::shared_ptr<const SyncPeriod> read_sync_period(Settings& settings, const AlgorithmContext& context,
                                                   const std::optional<LocalPhase>& phase, bool may_follow_run) {
  AlgorithmContext of_period = context;
  if (phase && phase->learning_rate) of_period.learning_rate_warmup = Step{};
  // Rules that depend on the learning rate have no synchronous steps, so local steps are the whole run.
  const auto rate = phase ? phase->learning_rate_over(context.total_steps.value_or(Step{})) : std::nullopt;
  if (rate) of_period.learning_rate = &*rate;
  Settings period = settings.section({"period", "How many steps workers take between two averages."});
  return make_sync_period(period, of_period, may_follow_run);
}

StatePolicies read_state_policies(Settings& settings) {
  const Key all{"moments", "What happens to the optimizer's moments when models are averaged."};
  const Key first{"first_moment", "What happens to the first moment, which is SGD's momentum."};
  const Key second{"second_moment", "What happens to the second moment."};
  const StatePolicy moments = read_moment(settings, all, StatePolicy::keep);
  const std::array of_each = {read_moment(settings, first, moments, "as `moments`"),
                              read_moment(settings, second, moments, "as `moments`"), moments};
  StatePolicies policies = read_buffer_policies(settings);
  policies.average.moments = of_each;
  return policies;
}

StatePolicies read_buffer_policies(Settings& settings) {
  StatePolicies policies;
  constexpr std::optional<StatePolicy> recalibrated;  // statistics kept at an average, and estimated for evaluations
  const Key key{"buffers",
                "What happens to BatchNorm statistics at an average; recalibrate: estimate them before evaluations."};
  const auto buffers = settings.choice<std::optional<StatePolicy>>(key,
                                                                   {{"average", StatePolicy::average},
                                                                    {"keep", StatePolicy::keep},
                                                                    {"reset", StatePolicy::reset},
                                                                    {"recalibrate", recalibrated}},
                                                                   StatePolicy::average);
  policies.average.buffers = buffers.value_or(StatePolicy::keep);
  if (buffers) return policies;
  const Key count{"recalibration_micro_batches", "Micro-batches for estimating BatchNorm statistics.", "micro-batches"};
  policies.recalibration_micro_batches = static_cast<int>(settings.integer(count, 1, 1'000'000, 128));
  return policies;
}

StatePolicies read_state_policies(Settings& settings, const AlgorithmContext& context) {
  return with_weights(settings, context, read_state_policies(settings));
}

StatePolicies read_buffer_policies(Settings& settings, const AlgorithmContext& context) {
  return with_weights(settings, context, read_buffer_policies(settings));
}

StatePolicies read_policies_of_stopping(Settings& settings, const AlgorithmContext& context) {
  const auto weights = settings.choice(
      {"weights",
       "Weights of models in an average: equal, by steps taken, or by the workers' training samples (FedAvg)."},
      {{"equal", ModelWeights::equal}, {"steps", ModelWeights::steps}, {"samples", ModelWeights::samples}},
      ModelWeights::equal);
  return with_weights(settings, context, weights, read_state_policies(settings));
}

void publish(Participant& participant, const StatePolicies& policies, const ModelStatePtr& model,
             std::vector<ModelStatePtr> ensemble) {
  if (participant.rank() != Rank{0}) return;  // publications of other workers would be ignored, and cost time
  participant.publish(
      Publication{.model = model ? model : participant.model(),
                  .ensemble = std::move(ensemble),
                  .recalibration = micro_batches_to_come(participant, policies.recalibration_micro_batches)});
}

// ceil((p + 1) H / P), computed without overflow: H may be huge in a run whose budget does not count steps.
Step Fragments::offset(int fragment, Step round) const {
  const Step::Rep turn = fragment + 1, whole = round.value() / count_, rest = round.value() % count_;
  return Step{turn * whole + (turn * rest + count_ - 1) / count_};
}

// A time-only run may have no parameters; then there is nothing to check.
void Fragments::check(const Participant& participant) const {
  const std::int64_t parameters = participant.parameters();
  if (count_ == 1 || parameters == 0 || count_ <= parameters) return;
  throw RunFailure(fmt::format("{}{}the model has {} parameters, and each fragment needs at least one", written_,
                               written_.empty() ? "" : "; ", parameters));
}

Fragments read_fragments(Settings& settings, std::optional<int> usual, std::optional<std::int64_t> parameters) {
  constexpr std::int64_t most = 1'000'000;
  const Key key{"fragments", "Number of equal parts into which the model is divided (P)."};
  const std::int64_t count =
      usual ? settings.integer(key, 1, most, std::int64_t{*usual}) : settings.integer(key, 1, most);
  if (parameters && count > 1 && count > *parameters)
    settings.fault("fragments", fmt::format("must be at most {}, the number of the model's parameters", *parameters));
  return Fragments(static_cast<int>(count), settings.written("fragments"));
}

namespace {

// Returns the expected time in which the slowest worker takes `length` steps; none if unknown.
using TimeOfSteps = std::function<std::optional<SampledMean>(Step length)>;

// Predicts the mean step time over all rounds of the run. None if the lengths of rounds are not known in advance, or if
// the time of a round is unknown.
std::optional<Prediction> mean_of_rounds(const SyncPeriod& period, double average_s, const TimeOfSteps& slowest,
                                         const LearningRate& rate, const PredictionInput& input) {
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
    Step length = period.at(begin, rate.at(begin), left);
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
    return "the run decides how long its rounds are, or they are too long or too many for a formula";
  return "its steps have no finite variance, so its rounds would have to be drawn, but they are too long or too many "
         "for that, or the run decides how long they are";
}

}  // namespace

Forecast predict_rounds(const SyncPeriod& period, const AveragePolicy& policy, const LearningRate& rate,
                        const PredictionInput& input) {
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
    if (auto by_law = mean_of_rounds(period, average_s, normal, rate, input)) {
      by_law->formula = "rounds of normal sums";
      by_law->sync_step_time_s = expected_slowest_sum(times) + input.all_reduce_s();
      predictions.push_back(*by_law);
    }
  if (times.slowest_s)
    if (auto by_steps = mean_of_rounds(period, average_s, sampled, rate, input);
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
                                    const CommunicationInput& input, const CommunicationOfRounds& rounds) {
  const Bytes of_groups = input.within_groups(rounds.groups.size, input.payload_of(policy));
  const LearningRate& rate = rounds.rate ? *rounds.rate : input.learning_rate;
  Communicated sum;
  for (Step done{}; done < input.steps;) {
    const Step length = period.at(done, rate.at(done), input.steps - done);
    if (done < period.synchronous_steps()) {
      sum.bytes += input.of_gradient();
      ++sum.rounds;
    } else {
      sum.bytes += input.of_average(period.due(done + length, input.steps, policy)) + rounds.beside_average;
      sum.bytes += Bytes{(length.value() - 1) / rounds.groups.period.value() * of_groups.value()};
      sum.rounds += rounds.rows;
    }
    done += length;
  }
  return sum;
}

}  // namespace syncopate
