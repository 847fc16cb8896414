// Codes with plain sums: fractional repetition, and no code at all.
// Source:  Tandon, Lei, Dimakis, Karampatziakis 2017, "Gradient Coding" (fractional repetition; the baseline that
//          ignores stragglers).
// Checks:  the sum is the full one, bit for bit, for every set of s stragglers; without a code the mean is that of
//          whoever has come.
#pragma once

#include "algorithms/gradient_coding/gradient_code.hpp"

namespace syncopate {

// N / (s + 1) groups of s + 1 workers; all of a group send the plain sum of the same s + 1 parts. s + 1 must
// divide N.
GradientCode fractional_repetition(int workers, int stragglers);

// No code: each worker computes its own part, and the sum of the first N - s is scaled by N / (N - s).
GradientCode ignore_stragglers(int workers, int stragglers);

}  // namespace syncopate
