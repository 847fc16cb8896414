// What several workers' outer gradients become before an outer optimizer steps along them.
// Source:  Douillard et al. 2026, "Decoupled DiLoCo": `rda` (workers/training/norm_preserving_mean.hpp), weights of
//          quantity times quality, k (k / s) for k micro-batches in s steps.
// Shapes:  differences: (P,) flat float32, or a slice of it.
// Differs: the paper counts tokens; equal micro-batches are counted here, so that a weight is in proportion to s.
//          Embeddings have their weighted mean under `rda`, the default, as others tell of the paper; under
//          `rda-of-all` they have what all tensors have. Where fragments cut a tensor, each part of it counts as a
//          tensor, with a length and a direction of its own, so that the merged model depends on the borders.
// Checks:  golden tables; `rda` of one or of equal differences is themselves; weights by formula.
#pragma once

#include <cstdint>
#include <vector>

#include "workers/participant.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

enum class MergeRule {
  mean,  // weighted
  rda,   // the mean length along the mean direction, tensor by tensor of the slice; of embeddings the mean
  rda_of_all,
};
MergeRule read_merge_rule(Settings& settings);

// 0 where no step was taken.
constexpr double weight_of(std::int64_t micro_batches, Step steps) {
  if (steps.value() == 0) return 0;
  const auto k = static_cast<double>(micro_batches);
  return k * (k / static_cast<double>(steps.value()));
}

// The weights are positive, and are divided by their sum; null in time-only runs. Outside the slice it is undefined.
ModelStatePtr merge(const Participant& by, MergeRule rule, std::vector<WeightedState> differences, Slice slice = {});

}  // namespace syncopate
