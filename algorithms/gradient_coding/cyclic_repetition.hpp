// Cyclic repetition: a gradient code for any number of workers, in which worker i holds the parts i .. i + s
// (mod N) and any N - s messages give the sum.
// Source:  Tandon, Lei, Dimakis, Karampatziakis 2017, "Gradient Coding".
// Differs: the weights of a set of stragglers are found from one decomposition of the code, by a system of s
//          equations, and not by least squares over N - s messages. Codes are drawn until one is well enough
//          conditioned.
// Checks:  the decoded sum is the full sum for every set of s stragglers.
#pragma once

#include <cstdint>
#include <optional>

#include "algorithms/gradient_coding/gradient_code.hpp"

namespace syncopate {

// The largest weight of a message times the largest of a part: how much larger than the sum the terms may be
// whose difference it is. Rounding in double precision times this stays two digits below a float's.
inline constexpr double largest_cyclic_weight = 1e7;

// Beyond this a decomposition takes more than a second.
inline constexpr int most_cyclic_workers = 512;

// None if no code of 50 has a weight below the bound, over all sets of stragglers or, if these are very many,
// 1000 at random. `decode` throws RunFailure for a set that was not among these and is far beyond the bound.
std::optional<GradientCode> cyclic_repetition(int workers, int stragglers, std::uint64_t seed);

}  // namespace syncopate
