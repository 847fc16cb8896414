// SCAFFOLD: Local SGD with control variates: each local step is corrected by the difference between the mean of all
// workers' gradients and the worker's own, as estimated in the last round. So workers with different data do not drift
// to their own minima.
// Source:  Karimireddy et al. 2020, "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning".
//   y <- y - eta (g(y) - c_i + c), K times;  x <- x + rate mean_i(y_i - x);  c <- mean_i c_i, where c_i is
//   "steps" (Option II):      c_i - c + (x - y_i) / (sum of the K rates)
//   "gradient" (Option I):    a gradient at the round's first model, of one more step's micro-batches
// Shapes:  gradient, parameters, c, c_i: (P,) flat float32.
// Cost:    two all-reduces of P floats per round; four more vectors of P floats per worker. Option I computes one more
//          step per round.
// Differs: all workers take part in each round. With a schedule the K rates are summed, where the paper has K eta. Both
//          options assume plain SGD: with momentum or weight decay x - y_i is not a sum of gradients. The program
//          refuses other optimizers, and momentum with Option I, whose extra step would change it. Option I takes a
//          batch as large as a step's, after the local steps; it counts as a step for rules that begin at a step. The
//          corrections follow the optimizer's step. Each round has two rows in steps.csv. A worker that loses its state
//          begins with c_i = 0 again.
// Checks:  K = 1 with Option II is synchronous SGD with the rate `rate` eta; an independent reference of both options
//          with different data.
#pragma once

#include "algorithms/local_sgd/rounds.hpp"

namespace syncopate {

struct ScaffoldOptions {
  enum class Control { steps, gradient };
  std::shared_ptr<const SyncPeriod> period{};  // never null
  double rate = 1;                             // eta_g
  Control control = Control::steps;
  StatePolicies policies{};
};

class Scaffold : public Algorithm {
 public:
  explicit Scaffold(ScaffoldOptions options) : options_(std::move(options)) {}

  void run(Worker& worker) const override {
    train_together(worker, options_.period->synchronous_steps(), options_.policies);
    ModelStatePtr control;                              // c; null: zeros
    ResetOnOutage<ModelStatePtr> own(worker, nullptr);  // c_i; null: zeros
    while (worker.budget_left()) {
      const ModelStatePtr start = worker.model();
      ResetOnOutage<double> rates(worker, 0);
      take_round(worker, control, own, rates);
      ResetOnOutage<ModelStatePtr> kept_end(worker, worker.model());
      ModelStatePtr fresh;
      if (options_.control == ScaffoldOptions::Control::gradient) fresh = gradient_at(worker, start, *kept_end);
      const ModelStatePtr end = *kept_end ? *kept_end : start;  // an outage in the extra step has erased the round's
      if (fresh)
        *own = fresh;
      else if (*rates > 0)
        *own = progress(worker, start, end, *rates, control, *own);
      else if (!*own)
        *own = worker.combine({{1, end}, {-1, end}}, end);
      // The controls are averaged first: a worker that lost its state restarts from the last average, which must be the
      // average of models.
      worker.set_model(*own);
      worker.average_model({.policy = {.buffers = StatePolicy::keep}});
      control = worker.model();
      worker.set_model(end);
      worker.average_model({.policy = options_.policies.average});
      const ModelStatePtr mean = worker.model();
      worker.set_model(worker.combine({{1 - options_.rate, start}, {options_.rate, mean}}, mean));
      publish(worker, options_.policies);
    }
  }

  Traits traits() const override {
    return {.follows_clock = false,
            .publishes_rounds = true,
            .held = {.models = 5},
            .exchanged_whole = "averages of models and of control variates would need separate residuals"};
  }

  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    return communicated_in_rounds(*options_.period, options_.policies.average, input,
                                  {.rows = 2, .beside_average = input.of_gradient()});  // control variates
  }

 private:
  void take_round(Worker& worker, const ModelStatePtr& control, ResetOnOutage<ModelStatePtr>& own,
                  ResetOnOutage<double>& rates) const {
    const Step length = options_.period->at(worker.step(), worker.learning_rate(), worker.steps_left());
    for (Step taken{}; taken < length && worker.budget_left(BudgetView::local); ++taken) {
      const double rate = worker.learning_rate();
      worker.descend(worker.compute_step_gradient() / worker.micro_batches());
      const ModelStatePtr y = worker.model(), of_worker = *own;
      if (control && of_worker) worker.set_model(worker.combine({{1, y}, {rate, of_worker}, {-rate, control}}, y));
      *rates += rate;
    }
  }

  // A gradient at `start`, as the progress of a step of plain SGD divided by its rate; null if there is no budget for
  // it or the rate is 0.
  static ModelStatePtr gradient_at(Worker& worker, const ModelStatePtr& start, const ModelStatePtr& end) {
    const double rate = worker.learning_rate();
    if (rate <= 0 || !worker.budget_left(BudgetView::local)) return nullptr;
    worker.set_model(start);
    worker.descend(worker.compute_step_gradient() / worker.micro_batches(), {.is_planned = false});
    const ModelStatePtr moved = worker.model();
    worker.set_model(end);
    return progress(worker, start, moved, rate, nullptr, nullptr);
  }

  // (from - to) / rates, + own - control if there are any.
  static ModelStatePtr progress(const Worker& worker, const ModelStatePtr& from, const ModelStatePtr& to, double rates,
                                const ModelStatePtr& control, const ModelStatePtr& own) {
    std::vector<WeightedState> terms = {{1 / rates, from}, {-1 / rates, to}};
    if (control && own) terms.insert(terms.end(), {{1, own}, {-1, control}});
    return worker.combine(terms, to);
  }

  ScaffoldOptions options_;
};

inline std::unique_ptr<Algorithm> make_scaffold(Settings& settings, const AlgorithmContext& context) {
  ScaffoldOptions options{.period = read_sync_period(settings, context)};
  options.rate = settings.number({"rate", "How far the step of a round goes towards the average (eta_g)."},
                                 Range::finite_positive(), 1.0);
  using Control = ScaffoldOptions::Control;
  options.control = settings.choice(
      {"control", "A worker's control variate: from its steps (Option II), or a gradient at the round's model (I)."},
      {{"steps", Control::steps}, {"gradient", Control::gradient}}, Control::steps);
  options.policies = read_state_policies(settings);
  if (context.moment_decays.size() > 1)
    settings.fault("algorithm",
                   "needs the optimizer \"sgd\": with other optimizers a worker's progress is no sum of "
                   "gradients, so it gives no control variate");
  else if (!context.moment_decays.empty() && options.control == Control::gradient)
    settings.fault("control",
                   "must be \"steps\" with momentum: the extra step for the gradient would change the moment");
  return std::make_unique<Scaffold>(std::move(options));
}

}  // namespace syncopate
