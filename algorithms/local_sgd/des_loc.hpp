// DES-LOC: Local SGD that averages the parameters and each moment of the optimizer with separate periods: slowly
// changing vectors are averaged rarely.
// Source:  Iacob et al. 2026, "DES-LOC: Desynced Low Communication Adaptive Optimizers for Training Foundation Models".
// Shapes:  gradient, parameters, each moment: (P,) flat float32.   Units: periods in steps.
// Cost:    per step (1 / K_x + 1 / K_u + 1 / K_v) P floats in all-reduces, with the periods K_x of the parameters,
//          K_u of the first and K_v of the second moment. With the recommended K_u = 3 K_x and K_v = 6 K_x this is
//          half of the floats of Local Adam, in which all periods are K_x. If K_u and K_v are multiples of K_x, workers
//          synchronise every K_x steps, and wait for stragglers as in Local SGD.
// Differs: its authors' code was not available. Averages after the same step are one all-reduce. Step t begins with the
//          averages of the state after t steps, so that the step updates a moment's mean. The second moment itself is
//          averaged, not its root. Not established: whether a step that begins with an average of the parameters
//          computes its gradient at the average (as here) or at the model before; and the bias correction (here that of
//          the run's optimizer). Gradients are clipped by `training.clip_norm`. The parameters are averaged after the
//          last step. A worker that loses its state goes back to its state at the last synchronisation.
// Checks:  K_x = K_u = K_v equals Local SGD with averaged moments, and moments that are never averaged equal Local SGD
//          with kept ones, bit for bit; AdamW's recursion in double precision; bytes in closed form.
#pragma once

#include "algorithms/local_sgd/local_rounds.hpp"
#include "algorithms/local_sgd/run_periods.hpp"

namespace syncopate {

inline std::unique_ptr<Algorithm> make_des_loc(Settings& settings, const AlgorithmContext& context) {
  const Key period{"period", "Steps between averages of the parameters (K_x).", "steps"};
  RoundChoices choices{.period = read_moment_schedule(settings, period, context)};
  choices.policies = read_buffer_policies(settings, context);  // the schedule decides about moments
  return std::make_unique<LocalRounds>(std::move(choices));
}

}  // namespace syncopate
