// Standard normal numbers from the counter-based streams, through the inverse of the normal
// distribution function: one uniform number each, so that number i needs none of those before it.
#pragma once

#include <cstdint>
#include <span>

#include "workers/random/random.hpp"

namespace syncopate {

// out[i] = normal number `first + i` of the stream: mean 0, variance 1.
void fill_standard_normal(const RandomStream& stream, std::uint32_t first, std::span<double> out);

}  // namespace syncopate
