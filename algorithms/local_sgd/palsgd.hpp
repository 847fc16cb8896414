// Pseudo-asynchronous Local SGD (PALSGD): at each local step a worker either trains or, with probability p, is pulled
// towards the model of the last synchronisation, which needs neither a gradient nor communication. After H steps an
// outer optimizer steps along the average, as in DiLoCo.
// Source:  Naganuma et al. 2025, "Pseudo-Asynchronous Local SGD: Robust and Efficient Data-Parallel Training"; the
//          rules follow its authors' code.
// Shapes:  gradient, parameters, outer momentum: (P,) flat float32.
// Cost:    one all-reduce of P floats per H steps; one more vector of P floats per worker. A pulled step takes no time.
// Differs: a pull, theta <- theta - (eta / p) lambda (theta - Theta), changes all tensors; in the code only the first
//          tensor of each parameter group of the optimizer. It is not established whether the published runs did so.
//          Theta is the last outer model, which all workers store. Each worker draws for itself (`draws = "own"`); in
//          the code all workers are pulled in the same steps ("shared"). A pulled step's samples are left out of the
//          epoch, and count as dropped. So DiLoCo with equal steps sees 1 / (1 - p) times the samples: compare
//          methods at equal samples or time. A pull does not change the inner optimizer's moments. The first local step
//          may be a pull, and each round has H steps; in the code the first step always trains, and the first round is
//          a step shorter. The code averages moments in its synchronous steps; here that is not needed, since all
//          workers step along one sum.
// Checks:  p = 0 equals DiLoCo bit for bit; lambda = 0 equals DiLoCo that skips steps; the recursion in double
//          precision; mean and spread of a round's time against the binomial distribution.
#pragma once

#include "algorithms/local_sgd/local_rounds.hpp"

namespace syncopate {

inline std::unique_ptr<Algorithm> make_palsgd(Settings& settings, const AlgorithmContext& context) {
  RoundChoices choices{.period = read_sync_period(settings, context)};
  choices.outer = make_outer_optimizer(settings.section({"outer", "The optimizer that steps along the averages."}));
  choices.steps = read_pulling_steps(settings, "pull_");
  choices.policies = read_state_policies(settings, context);
  return std::make_unique<LocalRounds>(std::move(choices));
}

}  // namespace syncopate
