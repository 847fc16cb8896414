// The norm-preserving mean of differences between models: the mean of their lengths along the mean of their directions,
// with phi(x) = x / |x|, phi(0) = 0, and weights w that are divided by their sum:
//
//   (sum w |x|) phi(sum w phi(x))
//
// Source:  after descriptions of Decoupled DiLoCo (Douillard et al. 2026), which calls it RDA; its text was not at
//          hand.
// Shapes:  differences: (P,) flat float32; arithmetic in double precision.
// Cost:    each difference is read three times.
// Differs: where the directions cancel, so that their mean is shorter than 1e-6, it is the weighted mean; this bound
//          is ours. Of a tensor that a slice cuts the part within it counts as a tensor.
// Checks:  of one, or of equal ones, it is themselves; of m orthogonal ones of length R it has the length R, the mean
//          R / sqrt(m); a golden table of another implementation.
#pragma once

#include <cstddef>
#include <span>

#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

inline constexpr double shortest_mean_direction = 1e-6;

// Of one tensor.
void write_norm_preserving_mean(float* out, std::span<const WeightedVector> terms, std::size_t size);

// What tables of embeddings have, known by "embedding", "words" or "places" in their names.
enum class OfEmbeddings {
  mean,   // their weighted mean, as normalisation buffers do
  alike,  // what all tensors have
};

// Tensor by tensor of those in the slice; outside the slice it is 0. Moments are those of the first. Null in time-only
// runs.
ModelStatePtr norm_preserving_mean(Training& training, std::span<const WeightedState> differences, Slice slice = {},
                                   OfEmbeddings embeddings = OfEmbeddings::mean);

}  // namespace syncopate
