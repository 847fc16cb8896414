// Orders drawn at random.
#pragma once

#include <cstdint>
#include <vector>

#include "workers/random/random.hpp"

namespace syncopate {

// 0 to size - 1 in an order that is as likely as any other (Fisher and Yates), from `size` numbers of the stream,
// from `first` on. These have 52 bits, so the bias of an element is below size / 2^52.
std::vector<std::uint32_t> permutation(const RandomStream& stream, std::size_t size, std::uint32_t first = 0);

}  // namespace syncopate
