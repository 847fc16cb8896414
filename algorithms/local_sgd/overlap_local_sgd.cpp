#include "algorithms/local_sgd/overlap_local_sgd.hpp"

#include <vector>

namespace syncopate {

void OverlapLocalSgd::run(Worker& worker) const {
  train_together(worker, period_->synchronous_steps(), policies_);
  AverageUnderWay average(worker, policies_);
  ModelStatePtr anchor = worker.model(), velocity;
  double rate_before = 0;
  while (average.rounds_left()) {
    const double kept = kept_momentum(average.take_round(*period_), rate_before);
    if (average.is_under_way()) anchor = average.finish();
    const ModelStatePtr own = worker.model();
    worker.set_model(worker.combine({{1 - options_.mixing, own}, {options_.mixing, anchor}}, own));
    std::vector<WeightedState> sum = {{1, worker.model()}, {-1, anchor}};
    if (velocity) sum.push_back({kept, velocity});
    velocity = worker.combine(sum, own);
    average.start(worker.combine({{1, anchor}, {1, velocity}}, own), anchor);
    publish(worker, policies_, anchor);
  }
  if (average.is_under_way()) worker.set_model(average.finish());
  publish(worker, policies_);
}

// A round without steps, or at rate 0, leaves it as it is.
double OverlapLocalSgd::kept_momentum(double rate, double& rate_before) const {
  double kept = options_.momentum;
  if (rate <= 0 || options_.momentum_units == OverlapLocalOptions::MomentumUnits::model) return kept;
  if (rate_before > 0) kept *= rate / rate_before;
  rate_before = rate;
  return kept;
}

std::unique_ptr<Algorithm> make_overlap_local_sgd(Settings& settings, const AlgorithmContext& context) {
  using Units = OverlapLocalOptions::MomentumUnits;
  auto period = read_sync_period(settings, context);
  OverlapLocalOptions options;
  options.mixing = settings.number({"mixing", "How far a worker is pulled to the anchor after each round (alpha)."},
                                   Range::between(0, 1));
  options.momentum = settings.number({"momentum", "Share of the anchor's last step that the next one keeps (beta)."},
                                     Range{.low = 0, .high = 1, .low_open = false, .high_open = true}, 0.0);
  options.momentum_units = settings.choice({"momentum_units", "Whether that step changes with the learning rate."},
                                           {{"rate", Units::rate}, {"model", Units::model}}, Units::rate);
  return std::make_unique<OverlapLocalSgd>(std::move(period), options, read_overlapped_policies(settings, context));
}

}  // namespace syncopate
