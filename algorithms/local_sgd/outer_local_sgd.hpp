// Local SGD with an outer optimizer: after H local steps an outer step goes from the model after the last
// synchronisation towards the average of the workers' models, or beyond it.
// Source:  Wang et al. 2020, "SlowMo"; Douillard et al. 2023, "DiLoCo".
// Shapes:  gradient, parameters, outer momentum: (P,) flat float32.
// Cost:    one all-reduce of P floats per H steps; one more vector of P floats per worker.
// Differs: as local_rounds.hpp and outer_optimizer.hpp say.
// Checks:  a plain outer step with rate 1, and SlowMo without momentum, equal Local SGD; closed forms.
#pragma once

#include "algorithms/local_sgd/local_rounds.hpp"

namespace syncopate {

inline std::unique_ptr<Algorithm> make_outer_local_sgd(Settings& settings, const AlgorithmContext& context) {
  RoundChoices choices{.period = read_sync_period(settings, context)};
  choices.outer = make_outer_optimizer(settings.section({"outer", "The optimizer that steps along the averages."}));
  choices.policies = read_state_policies(settings, context);
  return std::make_unique<LocalRounds>(std::move(choices));
}

}  // namespace syncopate
