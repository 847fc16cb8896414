#include "algorithms/synchronous/drop_compute.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "workers/theory/sampled_times.hpp"

namespace syncopate {

namespace {

using Normalisation = DropComputeOptions::Normalisation;

// The expected share of micro-batches that a threshold keeps, E[M~] / M by Eq. 5, averaged over workers.
double kept_until(double threshold_s, const PredictionInput& input) {
  return mean_over_workers(input.times, [&](const MicroBatchLaw& law) {
    return expected_micro_batches(input.micro_batches, threshold_s, law) / input.micro_batches;
  });
}

// The prediction for a whole run. The run's first `forecast.from` steps have no threshold; they are neglected if the
// budget does not count steps. `cut`: the steps with a threshold.
Prediction of_run(const ThresholdForecast& forecast, const CutSteps& cut, const SlowestWorker& slowest,
                  const PredictionInput& input) {
  const auto steps = input.budget.steps;
  const double share = steps && *steps > forecast.from
                           ? static_cast<double>(forecast.from.value()) / static_cast<double>(steps->value())
                           : 0;
  const double serial_s = input.all_reduce_s();
  const double kept = share + (1 - share) * cut.kept.mean;
  return {.formula = slowest.formula,
          .step_time_s = share * slowest.step_s + (1 - share) * cut.time_s.mean + serial_s,
          .communication_s = serial_s,
          .kept = kept,
          .drop_rate = 1 - kept,
          .sync_step_time_s = slowest.step_s + input.dense_all_reduce_s(),
          .step_error_s = share * slowest.error_s + (1 - share) * cut.time_s.error,
          .kept_error = (1 - share) * cut.kept.error,
          .sync_step_error_s = slowest.error_s,
          .is_sampled = slowest.is_sampled};
}

SlowestWorker sampled_slowest(const SampledTimes& times) {
  return {.formula = "Eq. 6, sampled law",
          .step_s = *times.slowest_s,
          .error_s = times.slowest_error_s,
          .is_sampled = true};
}

// Predicts a run from the effect of its threshold on drawn steps. None if no steps were drawn.
std::optional<Prediction> sampled_run(const ThresholdForecast& forecast, const PredictionInput& input) {
  const auto cut = sample_cut_steps(input.times, forecast.threshold_s);
  if (!cut) return std::nullopt;
  return of_run(forecast, *cut, sampled_slowest(input.times), input);
}

std::optional<ThresholdForecast> find_threshold(const DropThreshold& rule, const SampledTimes& times,
                                                const PredictionInput& input) {
  std::vector<double> times_s;
  for (const Duration duration : times.micro_batch_times) times_s.push_back(to_seconds(duration));
  const MicroBatchTimes drawn{times_s, input.workers, static_cast<int>(times.drawn_steps()), input.micro_batches};
  return rule.forecast({.micro_batches = input.micro_batches, .serial_s = input.all_reduce_s(), .drawn = drawn});
}

// Estimates the result of one run, which searches once, from the results of several searches: their mean, with an error
// that includes their spread.
SampledMean of_one_run(const std::vector<SampledMean>& found) {
  std::vector<double> means;
  double error = 0;
  const auto count = static_cast<double>(found.size());
  for (const SampledMean& one : found) {
    means.push_back(one.mean);
    error += one.error / count;
  }
  const SampledMean mean = mean_of(means);
  return {mean.mean, std::hypot(error, mean.error * std::sqrt(count + 1))};
}

// Predicts a run whose rule searches its threshold. Each block of drawn steps has the length of the run's own search
// and gives one threshold. The threshold is evaluated on the steps outside the block, because it looks better than it
// is on the steps in which it was found.
std::optional<Prediction> searched_run(const DropThreshold& rule, const PredictionInput& input) {
  const std::size_t steps = input.times.drawn_steps();
  const std::size_t block = std::min(static_cast<std::size_t>(rule.traits.searched_steps.value()), steps / 2);
  if (input.times.micro_batch_times.empty() || block == 0) return std::nullopt;
  std::vector<SampledMean> time_s, kept;
  for (std::size_t first = 0; first + block <= steps; first += block) {
    const auto is_searched = [&](std::size_t step) { return first <= step && step < first + block; };
    const auto found = find_threshold(rule, choose_steps(input.times, is_searched), input);
    if (!found) return std::nullopt;
    const auto cut = sample_cut_steps(choose_steps(input.times, std::not_fn(is_searched)), found->threshold_s);
    if (!cut) return std::nullopt;
    time_s.push_back(cut->time_s);
    kept.push_back(cut->kept);
  }
  return of_run({.from = rule.traits.begins_after}, {of_one_run(time_s), of_one_run(kept)},
                sampled_slowest(input.times), input);
}

std::optional<Prediction> sampled_run(const DropThreshold& rule, const PredictionInput& input) {
  if (rule.traits.searches()) return searched_run(rule, input);
  const auto found = rule.forecast({.micro_batches = input.micro_batches, .serial_s = input.all_reduce_s()});
  return found ? sampled_run(*found, input) : std::nullopt;
}

Preempt read_preempt(Settings& settings) {
  return settings.choice(
      {"preempt",
       "A micro-batch at the deadline: lost, finished, finished if in its backward pass, or its finished layers kept."},
      {{"discard", Preempt::discard},
       {"microbatch", Preempt::microbatch},
       {"backward", Preempt::backward},
       {"layer", Preempt::layer}},
      Preempt::discard);
}

void read_normalisation(Settings& settings, DropComputeOptions& options) {
  options.normalisation = settings.choice(
      {"normalisation", "The divisor of sums: all micro-batches, the computed micro-batches, or their mean number."},
      {{"constant", Normalisation::constant},
       {"computed", Normalisation::computed},
       {"mean-rate", Normalisation::mean_rate}},
      options.normalisation);
  if (options.normalisation != Normalisation::mean_rate) return;
  const bool expected = options.threshold.traits.searches() && options.preempt == Preempt::discard;
  options.mean_drop_rate =
      settings.optional_number({"mean_drop_rate", "The mean drop rate, for normalisation = \"mean-rate\".", "",
                                "what an automatic threshold expects"},
                               Range::below_one());
  if (!settings.has("mean_drop_rate") && !expected)
    settings.fault("mean_drop_rate",
                   "must be given: only an automatic threshold with preempt = \"discard\" predicts it");
}

// Reports faults of keys that have no meaning with preempt = "layer", which keeps layers of a dropped micro-batch.
void check_cuts(Settings& settings, const DropComputeOptions& options) {
  if (options.normalisation == Normalisation::mean_rate)
    settings.fault("normalisation",
                   "must be \"constant\" or \"computed\" with preempt = \"layer\": the mean number of micro-batches "
                   "differs between tensors");
  if (options.compensation.computes_dropped)
    settings.fault("compensation",
                   "must be \"none\", \"extra-steps\" or \"larger-batch\" with preempt = \"layer\": "
                   "finished layers of a recomputed micro-batch would count twice");
}

}  // namespace

void DropCompute::run(Worker& worker) const {
  const auto threshold = options_.threshold.begin();
  const auto compensation = options_.compensation.begin(worker);
  TimedStep step;
  while (worker.budget_left()) {
    const StepWork work = compensation->next(worker);
    const Duration tau = work.usual ? threshold->current() : longest_duration;
    const Deadline deadline(later(worker.now(), tau), options_.preempt, options_.forward_share);
    step.begin(worker.now(), work.offered, work.offered_at_most, threshold->times_micro_batches());
    Gradient sum;
    for (std::size_t m = 0; m < work.size() && !sum.cut(); ++m) {
      const auto gradient = worker.compute_gradient(work[m], deadline);
      if (!gradient) break;
      sum += *gradient;
      step.add(worker, *gradient);
    }
    step.arrival = worker.now();
    worker.all_reduce_sum(sum, {.counted = counted(), .planned = compensation->computed(step.ends.size())});
    const double drop_rate = tau < longest_duration ? options_.mean_drop_rate.value_or(threshold->drop_rate()) : 0;
    worker.descend(sum / divisor(worker, sum, work.offered, drop_rate), work.step_options());
    worker.publish();
    if (work.usual) threshold->learn(worker, step);
    compensation->finished(worker, sum.micro_batches());
  }
}

double DropCompute::divisor(const Worker& worker, const Gradient& sum, int offered, double drop_rate) const {
  if (options_.normalisation == Normalisation::constant) return worker.size() * offered;
  if (options_.normalisation == Normalisation::mean_rate) return worker.size() * offered * (1 - drop_rate);
  return static_cast<double>(std::max<std::int64_t>(sum.micro_batches(), 1));  // no micro-batches: the sum is zero
}

// Workers behave alike unless they compensate for their own drops or divide by the number of computed micro-batches.
Traits DropCompute::traits() const {
  const bool alike = options_.compensation.is_none && options_.normalisation != Normalisation::computed;
  const ThresholdTraits rule = options_.threshold.traits;
  return {.has_formulas = true,
          .settles_after = rule.begins_after,
          .lockstep_from_step = alike && !rule.goes_on ? std::optional(rule.begins_after) : std::nullopt,
          .steps_along_fresh_mean = true,
          .takes_data_in_turn = !options_.compensation.computes_dropped,
          .sums_gradients = options_.preempt != Preempt::layer,
          .can_overlap_backward = true,
          .drops = Drops::uncomputed,
          .held = {.models = 0, .moments = 0, .timed_steps = rule.searched_steps},
          .exchanged_whole = "with preempt = \"layer\" each tensor's sum is over different workers"};
}

// Predicts by Eq. 6. E[T] is from Eq. 4 or from drawn steps; E[M~] is from Eq. 5, which treats sums of times as normal.
// If the last prediction disagrees with the drawn steps under the same threshold, or finds no threshold although the
// drawn steps have one, the prediction from the drawn steps alone follows it.
Forecast DropCompute::forecast(const PredictionInput& input) const {
  if (options_.preempt != Preempt::discard || !options_.compensation.is_none) return Forecast::none();
  const bool one_law_will_do = input.times.alike() || !options_.threshold.traits.searches();
  const auto sampled = sampled_run(options_.threshold, input);
  std::vector<Prediction> predictions;
  bool is_missed = true;  // whether the last prediction disagrees with the drawn steps
  for (const SlowestWorker& slowest : slowest_workers(input)) {
    if (!input.times.has_variance || !one_law_will_do) break;
    const auto forecast = options_.threshold.forecast({.micro_batches = input.micro_batches,
                                                       .law = input.times.law,
                                                       .slowest_s = slowest.step_s,
                                                       .serial_s = input.all_reduce_s(),
                                                       .shortest_s = input.times.shortest_s});
    if (!forecast) return Forecast::none();
    const bool drops = forecast->threshold_s < to_seconds(longest_duration);
    const CutSteps cut{.time_s = {std::min(forecast->threshold_s, slowest.step_s)},
                       .kept = {drops ? kept_until(forecast->threshold_s, input) : 1}};
    predictions.push_back(of_run(*forecast, cut, slowest, input));
    predictions.back().formula = slowest.by_equation_4 ? "Eqs. 4 to 6" : "Eqs. 5 and 6, " + slowest.formula;
    const auto shown = drops ? sampled_run(*forecast, input) : sampled;
    is_missed = shown && misses(predictions.back(), *shown);
  }
  if (sampled && is_missed) predictions.push_back(*sampled);
  if (!options_.threshold.forecast({.micro_batches = input.micro_batches, .law = input.times.law}))
    return Forecast::of(std::move(predictions), Forecast::none().why_none);
  return Forecast::of(std::move(predictions),
                      input.times.has_variance
                          ? "the workers have different times, and there are too many to sample each"
                          : has_no_variance);
}

std::unique_ptr<Algorithm> make_drop_compute(Settings& settings, const AlgorithmContext& context) {
  DropComputeOptions options;
  options.threshold = read_drop_threshold(settings, context);
  options.preempt = read_preempt(settings);
  options.forward_share = settings.number(
      {"forward_share", "Share of a micro-batch's time that its forward pass takes, for \"backward\" and \"layer\"."},
      Range::between(0, 1), Stated(options.forward_share, "1/3"));
  // The share of its time that a micro-batch must compute before the deadline so that it can count. With "microbatch"
  // one that has begun finishes. With "backward" it finishes once its forward pass is over. With "layer" its first
  // tensors can be finished soon after the forward pass.
  const double needed = options.preempt == Preempt::discard      ? 1
                        : options.preempt == Preempt::microbatch ? 0
                                                                 : options.forward_share;
  check_threshold(settings, options.threshold.begin()->current(), needed * context.shortest_micro_batch_s);
  read_normalisation(settings, options);
  options.compensation = read_drop_compensation(settings, context);
  if (options.normalisation == Normalisation::mean_rate && !options.mean_drop_rate && options.compensation.carries_over)
    settings.fault("mean_drop_rate",
                   "must be given with compensation = \"carry-over\": carried micro-batches are kept later, which the "
                   "threshold's prediction ignores");
  if (options.preempt == Preempt::layer) check_cuts(settings, options);
  return std::make_unique<DropCompute>(std::move(options));
}

}  // namespace syncopate
