// Wide gradients: sums whose large weights cancel, as those that decode a gradient code.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "workers/training/gradient.hpp"

namespace syncopate {

// The terms with micro-batches, each of these once per model, with the sum of its weights: what cancels is
// never computed, and weights that differ by rounding alone are made one, so that micro-batches are
// evaluated together. The result does not depend on the order of the terms.
std::vector<Gradient::Term> merge_weights(std::span<const Gradient::Term> terms);

// Micro-batches whose normalisation buffers are in the sum: the merged ones, and those of sums among `terms`.
std::int64_t count_buffers(std::span<const Gradient::Term> terms, std::span<const Gradient::Term> merged);

}  // namespace syncopate
