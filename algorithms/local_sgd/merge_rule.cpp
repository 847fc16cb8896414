#include "algorithms/local_sgd/merge_rule.hpp"

namespace syncopate {

ModelStatePtr merge(const Participant& by, MergeRule rule, std::vector<WeightedState> differences, Slice slice) {
  if (rule == MergeRule::rda) return by.norm_preserving_mean(differences, slice);
  double total = 0;
  for (const WeightedState& difference : differences) total += difference.weight;
  for (WeightedState& difference : differences) difference.weight /= total;
  return by.combine(differences);
}

MergeRule read_merge_rule(Settings& settings) {
  return settings.choice(
      {"merge", "What workers' outer gradients become: their weighted mean, or their mean length along its direction."},
      {{"mean", MergeRule::mean}, {"rda", MergeRule::rda}}, MergeRule::rda);
}

}  // namespace syncopate
