#include "algorithms/local_sgd/local_sgd.hpp"

namespace syncopate {

void LocalSgd::run(Worker& worker) const {
  const Step together = period_->synchronous_steps();
  if (const auto rate = phase_.learning_rate_over(worker.steps_left() - together)) worker.follow(*rate, together);
  train_together(worker, together, policies_);
  LocalTraining local(phase_, worker);
  while (worker.budget_left()) {
    local.take_steps(period_->at(worker.step(), worker.learning_rate(), worker.steps_left()));
    worker.average_model({.policy = policies_.average, .weight = policies_.model_weight()});
    publish(worker, policies_);
  }
}

void train_together(Worker& worker, Step until, const StatePolicies& policies) {
  while (worker.step() < until && worker.budget_left()) {
    Gradient sum = worker.compute_step_gradient();
    worker.all_reduce_sum(sum);
    worker.descend(sum / (worker.size() * worker.micro_batches()));
    publish(worker, policies);
  }
}

void take_local_steps(Worker& worker, Step count) {
  for (Step taken{}; taken < count && worker.budget_left(Judged::alone); ++taken)
    worker.descend(worker.compute_step_gradient() / worker.micro_batches());
}

Forecast LocalSgd::forecast(const PredictionInput& input) const {
  if (phase_.micro_batches) return Forecast::none("local steps have another number of micro-batches");
  // A rule whose rounds go by the rate has no steps before the phase.
  const auto rate = phase_.learning_rate_over(input.steps().value_or(Step{}));
  return predict_rounds(*period_, policies_.average, rate ? input.at_rate(*rate) : input);
}

std::optional<Communicated> LocalSgd::communication(const CommunicationInput& input) const {
  const auto rate = phase_.learning_rate_over(input.steps);
  return communicated_in_rounds(*period_, policies_.average, rate ? input.at_rate(*rate) : input);
}

std::shared_ptr<const SyncPeriod> read_sync_period(Settings& settings, const AlgorithmContext& context) {
  Settings period = settings.section({"period", "How many steps lie between two averages."});
  return make_sync_period(period, {context.learning_rate_warmup, context.counts_steps, context.budget_ends_alone,
                                   context.total_steps, context.learning_rate});
}

std::unique_ptr<Algorithm> make_local_sgd(Settings& settings, const AlgorithmContext& context) {
  LocalPhase phase = read_local_phase(settings, context);
  AlgorithmContext of_period = context;
  if (phase.learning_rate) of_period.learning_rate_warmup = Step{};
  // A rule whose rounds go by the rate has no steps before the phase.
  const auto rate = phase.learning_rate_over(context.total_steps.value_or(Step{}));
  if (rate) of_period.learning_rate = &*rate;
  auto period = read_sync_period(settings, of_period);
  StatePolicies policies = read_state_policies(settings);
  read_model_weights(settings, context.divides_data, policies);
  return std::make_unique<LocalSgd>(std::move(period), policies, phase);
}

}  // namespace syncopate
