// The largest values of a vector by magnitude.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace syncopate {

// Places of the k largest magnitudes, ascending; exact, equal ones by their lowest places. A NaN is larger than any
// number, so that it is sent, and not hidden.
std::vector<std::uint32_t> largest_magnitudes(std::span<const float> values, std::size_t k);

}  // namespace syncopate
