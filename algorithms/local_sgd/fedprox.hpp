// FedProx: Local SGD whose local steps are held near the round's first model by a proximal term, and in which workers
// may take different numbers of steps.
// Source:  Li et al. 2020, "Federated Optimization in Heterogeneous Networks", and its code.
//   w <- w - eta (g + mu (w - Theta)) for each of a worker's steps; the next Theta is the mean of the workers' models
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats per round; two more vectors of P floats per worker.
// Differs: the term is applied after the optimizer's step, so that momentum and AdamW do not see it (in the paper's
//          code the optimizer is plain SGD, for which both are equal; FedNova's code does the same with momentum). The
//          paper weighs models by samples (`weights = "samples"`). Its slow devices run a random number of epochs; here
//          `steps_of_workers` gives fixed numbers. Workers that finish early wait.
// Checks:  mu = 0 is Local SGD bit for bit; a quadratic's fixed point mu Theta / (h + mu); an independent reference.
#pragma once

#include "algorithms/local_sgd/local_rounds.hpp"

namespace syncopate {

inline std::unique_ptr<Algorithm> make_fedprox(Settings& settings, const AlgorithmContext& context) {
  RoundChoices choices{.period = read_sync_period(settings, context)};
  choices.steps = read_proximal_steps(settings, context);
  if (auto of_workers = read_steps_of_workers(settings, context); !of_workers.empty())
    choices.steps = limit_steps(choices.steps, std::move(of_workers));
  choices.policies = read_state_policies(settings, context);
  return std::make_unique<LocalRounds>(std::move(choices));
}

}  // namespace syncopate
