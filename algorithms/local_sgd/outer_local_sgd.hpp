// Local SGD with an outer optimizer: after H local steps a step of the outer optimizer goes from the model of the last
// synchronisation towards the average, or beyond.
// Source:  Wang et al. 2020, "SlowMo"; Douillard et al. 2023, "DiLoCo".
// Shapes:  gradient, parameters, outer momentum: (P,) flat float32.
// Cost:    one all-reduce of P floats per H steps; one more vector of P floats per worker.
// Differs: every worker takes the outer step itself, and all get the same. Moments of the inner optimizer stay with
//          their worker unless chosen. The rest as in outer_optimizer.hpp.
// Checks:  a plain outer step of rate 1, and SlowMo without momentum, equal Local SGD; closed forms.
#pragma once

#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/local_sgd/outer_optimizer.hpp"

namespace syncopate {

class OuterLocalSgd : public Algorithm {
 public:
  OuterLocalSgd(std::shared_ptr<const SyncPeriod> period, std::shared_ptr<const OuterOptimizer> outer,
                const StatePolicies& policies)
      : period_(std::move(period)), outer_(std::move(outer)), policies_(policies) {}

  void run(Worker& worker) const override {
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

  Traits traits() const override {
    return {.follows_clock = false,
            .lockstep_from_step = 0,
            .judges_budget_locally = true,
            .publishes_rounds = true,
            .averages_models = true,
            .averages_moments = policies_.average.averaged_vectors(2) > 1};
  }
  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    return communicated_in_rounds(*period_, policies_.average, input);
  }

 private:
  std::shared_ptr<const SyncPeriod> period_;
  std::shared_ptr<const OuterOptimizer> outer_;
  StatePolicies policies_;
};

inline std::unique_ptr<Algorithm> make_outer_local_sgd(Settings& settings, const AlgorithmContext& context) {
  auto period = read_sync_period(settings, context);
  auto outer = make_outer_optimizer(settings.section({"outer", "The optimizer that steps along the averages."}));
  return std::make_unique<OuterLocalSgd>(std::move(period), std::move(outer), read_state_policies(settings, context));
}

}  // namespace syncopate
