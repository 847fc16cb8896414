#include "algorithms/local_sgd/outer_local_sgd.hpp"

#include "algorithms/local_sgd/local_round.hpp"

namespace syncopate {

void OuterLocalSgd::run(Worker& worker) const {
  train_together(worker, period_->synchronous_steps(), policies_);
  ModelStatePtr momentum;
  while (worker.budget_left()) {
    const ModelStatePtr last = worker.model();
    // Where a budget of seconds cuts the last round short, workers may differ in it; worker 0 is who publishes.
    const double rate = take_round(worker, *period_);
    worker.average_model({.policy = policies_.average, .weight = policies_.model_weight()});
    worker.set_model(outer_->step(worker, {.last = last, .average = worker.model(), .inner_rate = rate}, momentum));
    publish(worker, policies_);
  }
}

std::unique_ptr<Algorithm> make_outer_local_sgd(Settings& settings, const AlgorithmContext& context) {
  auto period = read_sync_period(settings, context);
  Settings outer = settings.section({"outer", "The optimizer that steps along the averages."});
  std::shared_ptr<const OuterOptimizer> optimizer = make_outer_optimizer(outer);
  StatePolicies policies = read_state_policies(settings);
  read_model_weights(settings, context.divides_data, policies);
  return std::make_unique<OuterLocalSgd>(std::move(period), std::move(optimizer), policies);
}

}  // namespace syncopate
