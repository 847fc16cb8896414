#include "algorithms/local_sgd/merge_rule.hpp"

#include "workers/training/norm_preserving_mean.hpp"

namespace syncopate {

ModelStatePtr merge(const Participant& by, MergeRule rule, std::vector<WeightedState> differences, Slice slice) {
  if (rule != MergeRule::mean)
    return by.norm_preserving_mean(differences, slice,
                                   rule == MergeRule::rda ? OfEmbeddings::mean : OfEmbeddings::alike);
  double total = 0;
  for (const WeightedState& difference : differences) total += difference.weight;
  for (WeightedState& difference : differences) difference.weight /= total;
  return by.combine(differences);
}

MergeRule read_merge_rule(Settings& settings) {
  return settings.choice(
      {"merge", "Outer gradients' mean, or its direction with their mean length (rda: embeddings have the mean)."},
      {{"mean", MergeRule::mean}, {"rda", MergeRule::rda}, {"rda-of-all", MergeRule::rda_of_all}}, MergeRule::rda);
}

}  // namespace syncopate
