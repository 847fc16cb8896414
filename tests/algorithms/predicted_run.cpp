#include "tests/algorithms/predicted_run.hpp"

#include <cmath>

namespace syncopate {

std::vector<Prediction> PredictedRun::predict(const Algorithm& algorithm) const {
  return with_input([&](const PredictionInput& input) { return algorithm.forecast(input).predictions; });
}

std::string PredictedRun::why_not_predicted(const Algorithm& algorithm) const {
  return with_input([&](const PredictionInput& input) { return algorithm.forecast(input).why_none; });
}

PredictedRun::Simulated PredictedRun::simulate(const Algorithm& algorithm) const {
  const SimulatedRun setup{.workers = workers,
                           .micro_batches = micro_batches,
                           .base_s = base_s,
                           .network_s = network_s,
                           .network = network,
                           .budget = {.steps = steps},
                           .worker_factors = factors,
                           .delays = delays,
                           .objective = nullptr,
                           .seed = seed};
  const auto outcome = setup.run(algorithm);
  double kept = 0, dropped = 0, communication_s = 0;
  for (std::size_t i = 0; i < outcome.totals.kept.size(); ++i) {
    kept += static_cast<double>(outcome.totals.kept[i]);
    dropped += static_cast<double>(outcome.totals.dropped[i]);
    communication_s += to_seconds(start_time + outcome.totals.accounts[i][Activity::communicate]) / workers / steps;
  }
  double mean_s = 0, squares = 0;
  const auto rounds = static_cast<double>(outcome.rounds.size());
  for (const StepRow& round : outcome.rounds) mean_s += to_seconds(round.duration) / rounds;
  for (const StepRow& round : outcome.rounds) squares += std::pow(to_seconds(round.duration) - mean_s, 2);
  return {to_seconds(outcome.totals.end) / steps, dropped / (kept + dropped), std::sqrt(squares) / steps,
          communication_s, kept / workers / micro_batches / steps};
}

}  // namespace syncopate
