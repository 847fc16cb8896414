// DropCompute inside Local SGD: a worker whose time is over skips its remaining local steps and joins the average with
// its current model.
// Source:  Giladi et al. 2023 (DropCompute on top of Local SGD; the text does not describe its clock and weights).
// Shapes:  gradient, parameters: (P,) flat float32.   Units: threshold_s in seconds.
// Cost:    one all-reduce of P floats per period; at most H M gradients per worker.
// Differs: this is our reading. With clock = "period" (default) the threshold is for the whole period, with "step" for
//          each local step. If the threshold cuts a step, its finished gradients are used, divided by M, and count as a
//          step. Models have equal weights (default), or weights by "steps", or by "samples" as in FedAvg. The
//          synchronous steps of a post-local period are DropCompute steps. The threshold is fixed.
// Checks:  threshold = inf equals Local SGD bit for bit; times and drops of the tabulated toy experiment.
#pragma once

#include "algorithms/local_sgd/local_rounds.hpp"

namespace syncopate {

inline std::unique_ptr<Algorithm> make_drop_local_sgd(Settings& settings, const AlgorithmContext& context) {
  RoundChoices choices{.period = read_sync_period(settings, context)};
  choices.steps = read_dropping_steps(settings, context);
  choices.policies = read_policies_of_stopping(settings, context);
  return std::make_unique<LocalRounds>(std::move(choices));
}

}  // namespace syncopate
