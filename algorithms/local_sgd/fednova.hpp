// FedNova: Local SGD in which each worker's progress is divided by its effective number of steps before the mean, so
// that workers that take more steps do not pull the model towards their own minima.
// Source:  Wang et al. 2020, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
//          and its code.
//   cum_i = Theta - w_i after worker i's steps;  Theta <- Theta - (sum_i p_i a_i) sum_i p_i cum_i / a_i
//   a_i: per step  c <- rho c + 1, a <- a + c  with momentum rho (without: a <- a + 1);  then a <- (1 - eta mu) a + 1
//   with a proximal term. With that term sum_i p_i (steps of i) replaces sum_i p_i a_i.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats and one all-gather of two numbers per round.
// Differs: p_i are equal or by samples. Momentum is reset in each round, as in the code. With momentum and a proximal
//          term the code adds both to a in each step; so does this. The optimizer must be SGD with plain momentum or
//          none: a is not defined for others. The program refuses those with two moments; Nesterov's momentum and LARS
//          are not noticed. The code's momentum of the global model (gmf) is left out.
// Checks:  equal numbers of steps without a proximal term are Local SGD; rounds of one step are synchronous SGD; an
//          independent reference of all forms.
#pragma once

#include "algorithms/local_sgd/local_rounds.hpp"

namespace syncopate {

struct FedNovaOptions {
  std::shared_ptr<const SyncPeriod> period{};  // never null
  double momentum = 0;                         // rho, of the optimizer
  double mu = 0;                               // strength of the proximal term; 0: none
  std::vector<Step> steps_of_workers{};        // empty: the period's
  StatePolicies policies{.average = {.moments = {StatePolicy::reset, StatePolicy::reset}}};
};

class FedNova : public Algorithm {
 public:
  explicit FedNova(FedNovaOptions options) : options_(std::move(options)) {
    steps_ = options_.mu > 0 ? make_proximal_steps(options_.mu) : make_training_steps();
    if (!options_.steps_of_workers.empty()) steps_ = limit_steps(steps_, options_.steps_of_workers);
  }

  void run(Worker& worker) const override {
    train_together(worker, options_.period->synchronous_steps(), options_.policies);
    worker.set_model(worker.model(), StatePolicy::reset);
    const auto steps = steps_.begin(worker);
    while (worker.budget_left()) {
      const ModelStatePtr start = worker.model();
      const Effective own = take_round(worker, *steps);
      const double weight = worker.model_weight(options_.policies.model_weight());
      const double numbers[] = {weight, options_.mu > 0 ? static_cast<double>(own.steps.value()) : own.a};
      const auto mean_of = [](std::span<const double> all) {
        double weights = 0, sum = 0;
        for (std::size_t i = 0; i < all.size(); i += 2) weights += all[i], sum += all[i] * all[i + 1];
        return sum / weights;
      };
      const double factor = *worker.all_gather(numbers, mean_of);
      const ModelStatePtr end = worker.model();
      if (own.a > 0) worker.set_model(worker.combine({{1 - 1 / own.a, start}, {1 / own.a, end}}, end));
      worker.average_model({.policy = options_.policies.average, .weight = options_.policies.model_weight()});
      const ModelStatePtr mean = worker.model();
      worker.set_model(worker.combine({{1 - factor, start}, {factor, mean}}, mean));
      publish(worker, options_.policies);
    }
  }

  Traits traits() const override {
    return {.follows_clock = false,
            .publishes_rounds = true,
            .held = {.models = 3},
            .exchanged_whole = "each worker divides its progress by its own number of steps"};
  }

  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    constexpr std::int64_t of_two_numbers = 2 * sizeof(double);
    const Bytes gathered = all_gather_bytes(input.workers, Bytes{input.workers * of_two_numbers});
    return communicated_in_rounds(*options_.period, options_.policies.average, input, {.beside_average = gathered});
  }

 private:
  struct Effective {
    double a = 0;        // effective steps
    double counter = 0;  // c
    Step steps{};        // steps taken
  };

  Effective take_round(Worker& worker, LocalSteps& steps) const {
    const Step length = options_.period->at(worker.step(), worker.learning_rate(), worker.steps_left());
    ResetOnOutage<Effective> done(worker);
    steps.begin_round();
    take_steps(worker, steps, length, [&](double rate) {
      Effective& own = *done;
      own.counter = options_.momentum * own.counter + 1;
      if (options_.momentum > 0 || options_.mu == 0) own.a += own.counter;
      if (options_.mu > 0) own.a = (1 - rate * options_.mu) * own.a + 1;
      ++own.steps;
    });
    return *done;
  }

  FedNovaOptions options_;
  StepRule steps_;
};

inline std::unique_ptr<Algorithm> make_fednova(Settings& settings, const AlgorithmContext& context) {
  FedNovaOptions options{.period = read_sync_period(settings, context)};
  options.mu = settings.number({"proximal", "Strength of the pull back towards the round's first model (mu); 0: none."},
                               Range::finite_from_zero(), 0.0);
  options.steps_of_workers = read_steps_of_workers(settings, context);
  if (!context.moment_decays.empty()) options.momentum = context.moment_decays.front();
  if (context.moment_decays.size() > 1)
    settings.fault("algorithm",
                   "needs the optimizer \"sgd\", with or without momentum: the effective number of steps of "
                   "other optimizers is not defined");
  options.policies = read_buffer_policies(settings, context);
  options.policies.average.moments = FedNovaOptions().policies.average.moments;
  return std::make_unique<FedNova>(std::move(options));
}

}  // namespace syncopate
