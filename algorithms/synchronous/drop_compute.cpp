#include "algorithms/synchronous/drop_compute.hpp"

#include <algorithm>
#include <string>

namespace syncopate {

using Normalisation = DropComputeOptions::Normalisation;

void DropCompute::run(Worker& worker) const {
  const auto threshold = options_.threshold->begin();
  const auto compensation = options_.compensation->begin(worker);
  TimedStep step;
  while (worker.budget_left()) {
    const StepWork work = compensation->next(worker);
    step.start = worker.now();
    step.ends.clear();
    step.times.clear();
    step.offered = work.offered;
    const Duration tau = work.usual ? threshold->current() : longest_duration;
    const bool times = threshold->times_micro_batches();
    const Deadline deadline(later(step.start, tau), options_.preempt, options_.forward_share);
    Gradient sum;
    for (const MicroBatch& samples : work.samples) {
      const auto gradient = worker.compute_gradient_on(samples, deadline);
      if (!gradient) break;
      sum += *gradient;
      step.ends.push_back(worker.now());
      if (times) step.times.push_back(gradient->compute_time() + worker.sleep_after());
    }
    step.arrival = worker.now();
    compensation->computed(worker, step.ends.size());
    const double divisor = all_reduce_sum(worker, sum, *threshold, {tau, work.offered});
    worker.descend(sum / divisor);
    worker.publish();
    if (work.usual) threshold->learn(worker, step);
    compensation->finished(worker, sum.micro_batches());
  }
}

// Sums the gradients of all workers and says by what to divide.
double DropCompute::all_reduce_sum(Worker& worker, Gradient& sum, const DropThreshold::Course& threshold,
                                   const Offer& offer) const {
  if (options_.normalisation == Normalisation::computed) {
    auto computed = static_cast<double>(sum.micro_batches());
    worker.all_reduce_sum(sum, {&computed, 1});
    return std::max(computed, 1.0);  // a sum of nothing is zero, whatever divides it
  }
  worker.all_reduce_sum(sum);
  if (options_.normalisation == Normalisation::constant) return worker.size() * worker.micro_batches();
  const bool drops = offer.threshold < longest_duration;
  const double rate = drops ? options_.mean_drop_rate.value_or(threshold.expected_drop_rate().value_or(0)) : 0;
  return worker.size() * offer.micro_batches * (1 - rate);
}

namespace {

// E[M~] / M by Eq. 5, over workers that may differ.
double kept_until(double threshold_s, const PredictionInput& input) {
  const auto kept = [&](const MicroBatchLaw& law) {
    return expected_micro_batches(input.micro_batches, threshold_s, law) / input.micro_batches;
  };
  if (input.times.alike()) return kept(input.times.law);
  double sum = 0;
  for (const MicroBatchLaw& law : input.times.laws) sum += kept(law);
  return sum / static_cast<double>(input.times.laws.size());
}

}  // namespace

// Eq. 6 with the expectations of Eq. 4, or sampled ones, and of Eq. 5; steps without a threshold come first.
std::vector<Prediction> DropCompute::predict(const PredictionInput& input) const {
  if (options_.preempt != Preempt::discard || !options_.compensation->is_none()) return {};
  const double serial_s = input.all_reduce_s();
  std::vector<Prediction> predictions;
  for (const auto& [formula, slowest_s] : slowest_workers(input)) {
    const ThresholdQuestion question{input.micro_batches, input.times.law, slowest_s, serial_s};
    const auto forecast = options_.threshold->forecast(question);
    const bool depends_on_one_law = options_.threshold->expects_a_drop_rate();
    if (!forecast || (depends_on_one_law && !input.times.alike())) return {};
    // With a budget that does not count steps the first ones are left out.
    const auto steps = input.steps();
    const double share = steps && *steps > forecast->from
                             ? static_cast<double>(forecast->from.value()) / static_cast<double>(steps->value())
                             : 0;
    const bool drops = forecast->threshold_s < to_seconds(longest_duration);
    const double kept = drops ? share + (1 - share) * kept_until(forecast->threshold_s, input) : 1;
    const double computing_s = share * slowest_s + (1 - share) * std::min(forecast->threshold_s, slowest_s);
    const std::string name = formula == "Eq. 4" ? "Eqs. 4 to 6" : "Eqs. 5 and 6, " + formula;
    predictions.push_back({name, computing_s + serial_s, serial_s, kept, 1 - kept, slowest_s + serial_s});
  }
  return predictions;
}

namespace {

Preempt read_preempt(Settings& settings) {
  static constexpr std::string_view names[] = {"discard", "microbatch", "backward"};
  const std::string name = settings.choice("preempt", names, "discard");
  return name == "microbatch" ? Preempt::microbatch : name == "backward" ? Preempt::backward : Preempt::discard;
}

void read_normalisation(Settings& settings, DropComputeOptions& options) {
  static constexpr std::string_view names[] = {"constant", "computed", "mean-rate"};
  const std::string name = settings.choice("normalisation", names, "constant");
  options.normalisation = name == "computed"    ? Normalisation::computed
                          : name == "mean-rate" ? Normalisation::mean_rate
                                                : Normalisation::constant;
  if (name != "mean-rate") return;
  const bool expected = options.threshold->expects_a_drop_rate() && options.preempt == Preempt::discard;
  if (settings.has("mean_drop_rate"))
    options.mean_drop_rate = settings.number("mean_drop_rate", {.low = 0, .high = 1, .high_open = true});
  else if (!expected)
    settings.fault("mean_drop_rate", "must be given: only an automatic threshold with preempt = \"discard\" knows it");
}

}  // namespace

std::unique_ptr<Algorithm> make_drop_compute(Settings& settings, const AlgorithmContext& context) {
  DropComputeOptions options;
  options.threshold = read_drop_threshold(settings, {.total_steps = context.total_steps});
  options.preempt = read_preempt(settings);
  options.forward_share = settings.number("forward_share", Range::between(0, 1), options.forward_share);
  // A micro-batch that has begun finishes with preempt = "microbatch", and after its forward pass with "backward".
  const double needed = options.preempt == Preempt::discard    ? 1
                        : options.preempt == Preempt::backward ? options.forward_share
                                                               : 0;
  check_threshold(settings, options.threshold->begin()->current(), needed * context.shortest_micro_batch_s);
  read_normalisation(settings, options);
  options.compensation = read_drop_compensation(settings, {.micro_batches = context.micro_batches,
                                                           .steps_per_epoch = context.steps_per_epoch,
                                                           .total_steps = context.total_steps});
  if (options.normalisation == Normalisation::mean_rate && !options.mean_drop_rate &&
      settings.text("compensation", "none") == "carry-over")
    settings.fault("mean_drop_rate", "must be given with compensation = \"carry-over\": what is carried is kept later");
  return std::make_unique<DropCompute>(std::move(options));
}

}  // namespace syncopate
