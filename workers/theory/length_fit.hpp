// How a micro-batch's time depends on the lengths in it, from times that were measured: least squares, without negative
// costs.
#pragma once

#include <span>

#include "workers/delays/content_time.hpp"

namespace syncopate {

// A micro-batch; the first three as in ContentCost.
struct TimedLengths {
  double tokens = 0;
  double padded_tokens = 0;
  double squares = 0;
  double seconds = 0;
};

struct LengthFit {
  // Each at least 0.
  ContentCost cost;
  double r_squared = 1;           // share of the times' variance that the line explains; 1 where they have none
  double largest_residual_s = 0;  // |time - line|
  double typical_residual_s = 0;  // root of the mean square
  int points = 0;
};

// How micro-batches were computed, and so what can cost time.
enum class Computed {
  own,              // by tokens or by padded tokens, not by both
  padded,           // by padded tokens, of which the others are no part
  padded_and_asked  // by both: what is asked for is their own
};

// Of one or more micro-batches. A cost that would come out negative is left out, and the others are fitted anew; so is
// one that the lengths do not tell from the others.
LengthFit fit_lengths(std::span<const TimedLengths> timed, Computed computed = Computed::own);

}  // namespace syncopate
