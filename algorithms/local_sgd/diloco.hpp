// DiLoCo: Local SGD in which an outer step with Nesterov's momentum goes along the mean of the workers' progress. With
// optimizer.name = "muon" it is MuLoCo; with one worker it is SNOO, and then without momentum Lookahead.
// Source:  Douillard et al. 2023, "DiLoCo". Therien et al. 2025 (MuLoCo, arXiv 2505.23725). Kallusky et al. 2025 (SNOO,
//          arXiv 2510.15830).
//   after H steps of all workers:  Delta = X - mean(y);  v = momentum v + Delta;  X = X - rate (Delta + momentum v)
// Shapes:  gradient, parameters, outer momentum: (P,) flat float32.
// Cost:    one all-reduce of P floats per H steps; one more vector of P floats per worker.
// Differs: DiLoCo's inner optimizer is AdamW; here it is that of [training.optimizer]. The defaults of `rate` and
//          `momentum` are DiLoCo's; MuLoCo's published package has 0.7 and 0.6. MuLoCo's two-bit progress is the
//          compression "bins". For the rest see outer_local_sgd.hpp, whose preset this is.
// Checks:  equals `outer-local-sgd` with outer.name = "diloco" bit for bit.
#pragma once

#include "algorithms/local_sgd/local_rounds.hpp"

namespace syncopate {

inline std::unique_ptr<Algorithm> make_diloco_rounds(Settings& settings, const AlgorithmContext& context) {
  constexpr double usual_rate = 0.7, usual_momentum = 0.9;
  RoundChoices choices{.period = read_sync_period(settings, context)};
  const double rate = settings.number({"rate", "How far the outer step goes along the workers' mean progress."},
                                      Range::positive(), usual_rate);
  const double momentum = settings.number({"momentum", "Share of the outer momentum that a step keeps."},
                                          Range::below_one(), usual_momentum);
  choices.outer = make_diloco(rate, momentum);
  choices.policies = read_state_policies(settings, context);
  return std::make_unique<LocalRounds>(std::move(choices));
}

}  // namespace syncopate
