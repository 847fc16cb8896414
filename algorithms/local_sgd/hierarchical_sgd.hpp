// Hierarchical Local SGD: models are averaged often within groups of workers, and over all groups less often.
// Source:  Lin et al. 2020, "Don't Use Large Mini-Batches, Use Local SGD" (hierarchical Local SGD).
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats within each group per group period, and one over all workers per period.
// Differs: `period` counts steps and follows any rule of sync_period.hpp. If it ends within a group period, the group
//          period ends early, with the average over all workers. Both kinds of averages use the same network.
//          local_rounds.hpp describes groups.
// Checks:  one group of all workers equals Local SGD with the group period; groups of one worker equal Local SGD with
//          `period`.
#pragma once

#include "algorithms/local_sgd/local_rounds.hpp"

namespace syncopate {

inline std::unique_ptr<Algorithm> make_hierarchical_sgd(Settings& settings, const AlgorithmContext& context) {
  RoundChoices choices{.groups = read_groups(settings, context, "group_")};
  choices.period = read_sync_period(settings, context);
  choices.policies = read_state_policies(settings, context);
  return std::make_unique<LocalRounds>(std::move(choices));
}

}  // namespace syncopate
