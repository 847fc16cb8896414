// Stochastic gradient coding: each part is held by d workers, weighted by 1 / (d (1 - p)), so that the sum of
// whatever arrives is the full sum on average where a message is missing with probability p.
// Source:  Bitar, Wootters, El Rouayheb 2020, "Stochastic Gradient Coding for Straggler Mitigation in Distributed
//          Learning"; the scheme as we understand it, not confirmed in its text.
// Differs: how the parts are drawn: see Placement.
// Checks:  unbiased; the variance with independent placement is
//          p / (1 - p) [(1/d - 1/N) sum |g_i|^2 + |G|^2 / N], over placements and stragglers.
#pragma once

#include <cstdint>

#include "algorithms/gradient_coding/gradient_code.hpp"

namespace syncopate {

enum class Placement {
  independent,  // each part's d workers are drawn on their own: two parts share d^2 / N workers on average
  balanced,     // every worker holds d parts, and pairs of parts share as evenly many workers as 100 draws give
};

// A step is made of `needed` messages, or of fewer where fewer can come.
struct StochasticCodeOptions {
  int copies = 2;              // d
  double straggler_share = 0;  // p, below 1
  int needed = 1;
  Placement placement = Placement::independent;
  std::uint64_t seed = 1;
};

GradientCode stochastic_code(int workers, const StochasticCodeOptions& options);

}  // namespace syncopate
