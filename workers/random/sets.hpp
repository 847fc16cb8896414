// Sets of numbers, drawn, or one after another.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "workers/random/random.hpp"

namespace syncopate {

// `chosen` different numbers below `count`, each set as likely as any other, from as many numbers of the stream.
std::vector<int> draw_set(int count, int chosen, const RandomStream& stream, std::uint32_t first = 0);

// Whether it holds for every set of `chosen` numbers below `count`, or, where there are more than `most_sets`, for as
// many that are drawn.
bool holds_for_sets(int count, int chosen, int most_sets, const RandomStream& stream,
                    const std::function<bool(std::span<const int>)>& holds_for);

}  // namespace syncopate
