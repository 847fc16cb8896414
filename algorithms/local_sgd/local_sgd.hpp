// Local SGD: each worker takes H steps on its own; then the parameters of all workers are averaged.
// Source:  Lin et al. 2020 (Local and post-local SGD); Gu et al. 2024 (H by the quadratic rule).
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats per H steps (more if moments are averaged too).
// Differs: post-local SGD and SWAP begin with synchronous SGD, that is, with one model and one optimizer state, from
//          which all workers take their first local step. `local_phase` gives SWAP's second phase a batch, an order of
//          the data and a learning rate of its own. `buffers = "recalibrate"` estimates BatchNorm statistics at the
//          end of this phase, as SWAP does. The last average is always taken after the last step; the reference code
//          leaves a constant period's remainder un-averaged. Momentum stays with its worker, as in the reference code,
//          unless `moments` says otherwise. `weights = "samples"` weighs models as FedAvg does, but not the
//          gradients of synchronous steps. A moving average (`average`) includes the model of each round, also of the
//          last one.
// Checks:  H = 1 with plain SGD equals synchronous SGD, and so does post-local SGD before its switch, with any
//          optimizer; rounds match the golden sequences of the rule.
#pragma once

#include "algorithms/local_sgd/local_rounds.hpp"

namespace syncopate {

inline std::unique_ptr<Algorithm> make_local_sgd(Settings& settings, const AlgorithmContext& context) {
  RoundChoices choices{.steps = make_training_steps(read_local_phase(settings, context))};
  choices.period = read_sync_period(settings, context, choices.steps.phase);
  choices.policies = read_state_policies(settings, context);
  return std::make_unique<LocalRounds>(std::move(choices));
}

}  // namespace syncopate
