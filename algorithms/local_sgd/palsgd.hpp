// Pseudo-asynchronous Local SGD (PALSGD): at each local step a worker either trains or, with probability p, is pulled
// towards the model of the last synchronisation, which costs neither a gradient nor communication. After H steps an
// outer optimizer steps along the average, as in DiLoCo.
// Source:  Naganuma et al. 2025, "Pseudo-Asynchronous Local SGD: Robust and Efficient Data-Parallel Training"; the
//          rules follow its authors' code.
// Shapes:  gradient, parameters, outer momentum: (P,) flat float32.
// Cost:    one all-reduce of P floats per H steps; one more vector of P floats per worker. A pulled step takes no time.
// Differs: theta <- theta - (eta / p) lambda (theta - Theta) pulls all tensors; the code pulls only the first of each
//          group of the optimizer. Whether the published runs did so is not established. Each worker draws for itself
//          (`draws = "own"`); in the code all workers are pulled in the same steps ("shared"). A pulled step's samples
//          are left out of this epoch, and count as dropped. So a run with equally many steps sees 1 - p of the
//          samples:
//          compare methods at equal samples or time. Theta is the last outer model, which all workers have stored. A
//          pull does not change the inner optimizer's moments. Here the first local step may be a pull, and each round
//          has H steps; in the code the first step always trains, and the first round is a step shorter. The code
//          averages moments in its synchronous steps; here they are equal anyway, since all step along one sum.
// Checks:  p = 0 equals DiLoCo bit for bit; lambda = 0 equals DiLoCo that skips steps; the recursion in double
//          precision; mean and spread of a round's time against the binomial distribution.
#pragma once

#include "algorithms/local_sgd/local_rounds.hpp"

namespace syncopate {

class PalSgd : public LocalRounds {
 public:
  PalSgd(std::shared_ptr<const SyncPeriod> period, std::shared_ptr<const OuterOptimizer> outer, const PullOptions& pull,
         const StatePolicies& policies = {})
      : LocalRounds({.steps = make_pulling_steps(pull),
                     .period = std::move(period),
                     .outer = std::move(outer),
                     .policies = policies}) {}
};

inline std::unique_ptr<Algorithm> make_palsgd(Settings& settings, const AlgorithmContext& context) {
  RoundChoices choices{.period = read_sync_period(settings, context)};
  choices.outer = make_outer_optimizer(settings.section({"outer", "The optimizer that steps along the averages."}));
  choices.steps = make_pulling_steps(read_pull(settings, "pull_"));
  choices.policies = read_state_policies(settings, context);
  return std::make_unique<LocalRounds>(std::move(choices));
}

}  // namespace syncopate
