#include "algorithms/local_sgd/palsgd.hpp"

#include <cmath>

namespace syncopate {

void PalSgd::run(Worker& worker) const {
  train_together(worker, period_->synchronous_steps(), policies_);
  const StepOptions own_step{.rate_factor = 1 / (1 - pull_.probability)};
  ModelStatePtr momentum;
  while (worker.budget_left()) {
    const ModelStatePtr outer = worker.model();
    const Step period = period_->at(worker.step(), worker.learning_rate(), worker.steps_left());
    double rates = 0;
    Step taken{};
    for (; taken < period && worker.budget_left(Judged::alone); ++taken) {
      rates += worker.learning_rate();
      if (is_pulled(worker)) {
        const double part = worker.learning_rate() / pull_.probability * pull_.strength;
        worker.set_model(worker.combine({{1 - part, worker.model()}, {part, outer}}, worker.model()));
        worker.skip_steps(1);
      } else {
        worker.descend(worker.compute_step_gradient() / worker.micro_batches(), own_step);
      }
    }
    worker.average_model({.policy = policies_.average, .weight = policies_.model_weight(), .from = outer});
    const double rate = taken > 0 ? rates / static_cast<double>(taken.value()) : 0;
    worker.set_model(outer_->step(worker, {.last = outer, .average = worker.model(), .inner_rate = rate}, momentum));
    publish(worker, policies_);
  }
}

bool PalSgd::is_pulled(const Worker& worker) const {
  return pull_.probability > 0 && worker.uniform(worker.step(), pull_.draws) < pull_.probability;
}

// A step takes its time with probability 1 - p and none with p: of mean m and variance v it has the mean (1 - p) m and
// the variance (1 - p) v + p (1 - p) m^2. By the central limit, as other rounds.
Forecast PalSgd::forecast(const PredictionInput& input) const {
  const double p = pull_.probability;
  if (p == 0) return predict_rounds(*period_, policies_.average, input);
  if (pull_.draws == Drawn::together) return Forecast::none("rounds differ by how often all are pulled together");
  const std::vector<SlowestWorker> synchronous = slowest_workers(input);
  if (!input.times.has_variance || synchronous.empty()) return Forecast::none(has_no_variance);
  SampledTimes times = input.times;
  const auto thin = [&](MicroBatchLaw& law) {
    const double m = law.mean * std::sqrt(input.micro_batches);  // of a step, over sqrt(M), as its deviation
    law = {(1 - p) * law.mean, std::sqrt((1 - p) * law.deviation * law.deviation + p * (1 - p) * m * m)};
  };
  thin(times.law);
  for (SampledTimes::LawOfWorkers& one : times.laws) thin(one.law);
  times.step_times.clear();  // their sums are no longer those of rounds
  times.slowest_s.reset();
  Forecast forecast = predict_rounds(*period_, policies_.average,
                                     {.workers = input.workers,
                                      .micro_batches = input.micro_batches,
                                      .times = times,
                                      .network = input.network,
                                      .parameter_bytes = input.parameter_bytes,
                                      .moments = input.moments,
                                      .budget = input.budget,
                                      .samples_per_micro_batch = input.samples_per_micro_batch,
                                      .learning_rate = input.learning_rate,
                                      .exchanges = input.exchanges,
                                      .average_exchanges = input.average_exchanges});
  for (Prediction& prediction : forecast.predictions) {
    prediction.kept = 1 - p;
    prediction.drop_rate = p;
    prediction.sync_step_time_s = synchronous.front().step_s + input.all_reduce_s();
  }
  return forecast;
}

std::unique_ptr<Algorithm> make_palsgd(Settings& settings, const AlgorithmContext& context) {
  PullOptions pull;
  auto period = read_sync_period(settings, context);
  Settings outer = settings.section({"outer", "The optimizer that steps along the averages."});
  std::shared_ptr<const OuterOptimizer> optimizer = make_outer_optimizer(outer);
  pull.probability =
      settings.number({"pull_probability", "That a local step is a pull towards the last outer model (p)."},
                      Range{.low = 0, .high = 1, .high_open = true}, pull.probability);
  pull.strength =
      settings.number({"pull_strength", "Of a pull, in rates: it goes eta / p times this of the way (lambda)."},
                      Range::at_least(0), pull.strength);
  pull.draws = settings.choice({"draws", "Whether each worker draws for itself, or all are pulled in the same steps."},
                               {{"own", Drawn::alone}, {"shared", Drawn::together}}, pull.draws);
  StatePolicies policies = read_state_policies(settings);
  read_model_weights(settings, context.divides_data, policies);
  return std::make_unique<PalSgd>(std::move(period), std::move(optimizer), pull, policies);
}

}  // namespace syncopate
