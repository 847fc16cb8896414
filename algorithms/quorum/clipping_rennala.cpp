#include "algorithms/quorum/clipping_rennala.hpp"

#include <algorithm>

#include "algorithms/quorum/arrival_prediction.hpp"
#include "algorithms/quorum/trials.hpp"

namespace syncopate {

void ClippingRennala::run(Worker& worker) const {
  while (worker.receive_model())
    while (make_trial(worker, Deadline::until_message_or(later(worker.now(), options_.limit)))) continue;
}

void ClippingRennala::serve(Server& server) const {
  server.set_gradients_per_step(options_.trials);
  FailedTrials failed(server);
  while (server.budget_left()) {
    server.send_model(Receivers::all);
    Gradient sum;
    int trials = 0;
    do {
      const auto trial = server.receive_until_all_left();
      if (!trial) return;
      const bool succeeded = trial->kind == Message::Kind::gradient;
      if (succeeded && server.accept(*trial, {.maximum_staleness = 0})) sum += trial->gradient;
      if (trial->step == server.step()) ++trials;
      failed.count(succeeded, options_.limit);
    } while (trials < options_.trials || sum.micro_batches() == 0);
    server.descend(sum * (options_.correction / (trials * server.micro_batches())));
    server.publish();
  }
}

// As K-batch-sync's, of trials that end at the limit. What is cancelled at a step's end is dropped as well.
Forecast ClippingRennala::forecast(const PredictionInput& input) const {
  const double limit_s = to_seconds(options_.limit);
  const auto& drawn = input.times.step_times;
  if (!drawn.empty() && std::ranges::min(drawn) >= limit_s)
    return Forecast::none("no drawn gradient is done by limit_s");
  Forecast forecast = predict_arrivals(options_.trials, input, limit_s);
  for (Prediction& prediction : forecast.predictions) prediction.formula = "sampled S-th trial";
  return forecast;
}

std::unique_ptr<Algorithm> make_clipping_rennala(Settings& settings, const AlgorithmContext& context) {
  ClippingRennalaOptions options;
  options.trials = static_cast<int>(settings.integer(
      {"trials", "How many trials of all workers make a step (S), whether they come to a gradient or not."}, 1,
      1'000'000));
  // Trials are counted in steps; how many make so many samples is not known.
  WorkInBudget::of_steps(context.total_steps, context.workers).check(settings, "trials", options.trials);
  options.limit = from_seconds(
      settings.number({"limit_s", "After what time a gradient is given up; inf: never.", "s"}, Range::positive()));
  options.correction = settings.number(
      {"correction", "What the sum of the gradients over all trials is multiplied by; 1 / (share done): unbiased."},
      Range::positive(), options.correction);
  return std::make_unique<ClippingRennala>(options);
}

}  // namespace syncopate
