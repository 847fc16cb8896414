// Local SGD: each worker takes H steps on its own, then the parameters of all are averaged.
// Source:  Lin et al. 2020 (Local and post-local SGD); Gu et al. 2024 (H by the quadratic rule).
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats per H steps (more if moments are averaged too).
// Differs: post-local SGD and SWAP begin as synchronous SGD: one model and one optimizer state, from which all take
//          their first local step. `local_phase` gives SWAP's second phase its own batch, order of the data and
//          learning rate; `buffers = "recalibrate"` estimates BatchNorm statistics at its end, as there. The last
//          average always falls on the last step; the reference code leaves a constant period's remainder un-averaged.
//          Momentum stays with its worker (as there) unless chosen. `weights = "samples"` weighs models as FedAvg does,
//          but not the gradients of synchronous steps. A moving average (`average`) takes in each round's model, the
//          last one too.
// Checks:  H = 1 with plain SGD equals synchronous SGD, as does post-local SGD before its switch with any optimizer;
//          rounds match the golden sequences of the rule.
#pragma once

#include "algorithms/local_sgd/round_prediction.hpp"
#include "algorithms/local_sgd/rounds.hpp"
#include "algorithms/local_sgd/sync_period.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

// Synchronous SGD until `until` steps are done: all then have one model and one optimizer state.
inline void train_together(Worker& worker, Step until, const StatePolicies& policies) {
  while (worker.step() < until && worker.budget_left()) {
    Gradient sum = worker.compute_step_gradient();
    worker.all_reduce_sum(sum);
    worker.descend(sum / (worker.size() * worker.micro_batches()));
    publish(worker, policies);
  }
}

// Takes `count` steps on this worker alone, fewer where the budget or its own data end.
inline void take_local_steps(Worker& worker, Step count) {
  for (Step taken{}; taken < count && worker.budget_left(BudgetView::local); ++taken)
    worker.descend(worker.compute_step_gradient() / worker.micro_batches());
}

// Reads the table `period`; never null.
inline std::shared_ptr<const SyncPeriod> read_sync_period(Settings& settings, const AlgorithmContext& context) {
  Settings period = settings.section({"period", "How many steps lie between two averages."});
  return make_sync_period(period, {context.learning_rate_warmup, context.counts_steps, context.budget_ends_alone,
                                   context.total_steps, context.learning_rate});
}

// Local steps by a plan that all workers share, for methods whose averages start and end within a round. When a budget
// of seconds ends, workers may have taken different numbers of steps, but must still start and finish the same
// averages. So they go by the steps of the plan, which always go on.
class PlannedSteps {
 public:
  explicit PlannedSteps(Worker& worker) : worker_(worker), planned_(worker.step()) {}

  Step planned() const { return planned_; }
  // Whether the budget has steps for another round.
  bool steps_left() const { return worker_.steps_left() > behind(); }
  // The length of the round that begins here, as the rule says of a worker who has taken all steps of the plan.
  Step round(const SyncPeriod& period) const {
    return period.at(planned_, worker_.learning_rate(behind()), worker_.steps_left() - behind());
  }
  // Takes steps until so many are planned in all, fewer if the budget or this worker's data end. `after_step` gets the
  // learning rate of each.
  template <typename AfterStep>
  void take_until(Step planned, const AfterStep& after_step) {
    for (; planned_ < planned && worker_.budget_left(BudgetView::local); ++planned_) {
      after_step(worker_.learning_rate());
      take_local_steps(worker_, 1);
    }
    planned_ = planned;
  }

 private:
  Step behind() const { return planned_ - worker_.step(); }

  Worker& worker_;  // outlives it
  Step planned_;
};

class LocalSgd : public Algorithm {
 public:
  LocalSgd(std::shared_ptr<const SyncPeriod> period, const StatePolicies& policies, const LocalPhase& phase = {})
      : period_(std::move(period)), policies_(policies), phase_(phase) {}

  void run(Worker& worker) const override {
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

  Traits traits() const override {
    return {.has_formulas = true,
            .follows_clock = false,
            .settles_after = period_->synchronous_steps(),
            .lockstep_from_step = 0,
            .judges_budget_locally = true,
            .publishes_rounds = true,
            .takes_data_in_turn = phase_.sampling == LocalPhase::Sampling::shards,
            .averages_models = true,
            .averages_moments = policies_.average.averaged_vectors(2) > 1};
  }

  Forecast forecast(const PredictionInput& input) const override {
    if (phase_.micro_batches) return Forecast::none("local steps have another number of micro-batches");
    // A rule whose rounds go by the rate has no steps before the phase.
    const auto rate = phase_.learning_rate_over(input.steps().value_or(Step{}));
    return predict_rounds(*period_, policies_.average, rate ? input.at_rate(*rate) : input);
  }

  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    const auto rate = phase_.learning_rate_over(input.steps);
    return communicated_in_rounds(*period_, policies_.average, rate ? input.at_rate(*rate) : input);
  }

 private:
  std::shared_ptr<const SyncPeriod> period_;
  StatePolicies policies_;
  LocalPhase phase_;  // after the synchronous steps
};

inline std::unique_ptr<Algorithm> make_local_sgd(Settings& settings, const AlgorithmContext& context) {
  LocalPhase phase = read_local_phase(settings, context);
  AlgorithmContext of_period = context;
  if (phase.learning_rate) of_period.learning_rate_warmup = Step{};
  // A rule whose rounds go by the rate has no steps before the phase.
  const auto rate = phase.learning_rate_over(context.total_steps.value_or(Step{}));
  if (rate) of_period.learning_rate = &*rate;
  auto period = read_sync_period(settings, of_period);
  return std::make_unique<LocalSgd>(std::move(period), read_state_policies(settings, context), phase);
}

}  // namespace syncopate
