// AdaComm: Local SGD whose rounds become shorter as the training loss falls.
// Source:  Wang and Joshi 2019, "Adaptive Communication Strategies to Achieve the Best Error-Runtime Trade-off in
//          Local-Update SGD"; Paddle's AdaptiveLocalSGDOptimizer. The formulas: LossPeriod (run_periods.hpp).
// Shapes:  gradient, parameters: (P,) flat float32.   Units: intervals in steps, or seconds of the workers' clock.
// Cost:    one all-reduce of P floats per round, and one all-gather of each worker's loss (8 bytes; the first time also
//          F_0, 8 bytes more) per interval, in which the period is constant. With intervals in seconds there is an
//          all-gather per round, with each worker's clock, 8 bytes more.
// Differs: by default an interval is a round, as in Paddle. The paper's interval is T_0 seconds: a new one begins with
//          the first average after each multiple of T_0 (or of `interval_steps`). T_0 has no default, since the paper's
//          value is not established. F_l is the workers' mean loss in the last step before the interval, as in Paddle,
//          not the loss of the whole training set; F_0 is the mean loss in the first step, and eta_0 that step's rate.
//          Paddle's first average, after its first step, is left out. If a worker loses its state in the first
//          interval, its loss is left out of F_0; numbers that all have gathered are not lost.
// Checks:  with a constant loss and rate it equals Local SGD with the period tau_0 bit for bit; periods of a quadratic
//          against its recursion in double precision; virtual times by hand.
#pragma once

#include "algorithms/local_sgd/local_rounds.hpp"
#include "algorithms/local_sgd/run_periods.hpp"

namespace syncopate {

inline std::unique_ptr<Algorithm> make_adacomm(Settings& settings, const AlgorithmContext& context) {
  if (context.time_only) settings.fault("algorithm", "needs a model: the training loss decides how long rounds are");
  RoundChoices choices{.period = make_loss_period(read_loss_period(settings, context))};
  choices.policies = read_state_policies(settings, context);
  return std::make_unique<LocalRounds>(std::move(choices));
}

}  // namespace syncopate
