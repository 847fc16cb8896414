// Orders drawn at random.
#pragma once

#include <cstdint>
#include <vector>

#include "workers/random/random.hpp"

namespace syncopate {

// 0 to size - 1 in an order that is as likely as any other (Fisher and Yates), from the first `size` numbers of the
// stream. These have 52 bits, so the bias of an element is below size / 2^52.
std::vector<std::uint32_t> permutation(const RandomStream& stream, std::size_t size);

}  // namespace syncopate
