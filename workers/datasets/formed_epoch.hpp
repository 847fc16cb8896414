// An epoch's samples, formed into micro-batches by their lengths.
// Source:  packing in order of arrival, as next-fit bin packing; bucketing as torchtext's and fairseq's batch
//          iterators.
// Shapes:  order (n,) sample numbers; lengths (n,) by sample number.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "workers/random/random.hpp"

namespace syncopate {

// Micro-batch i has samples order[begins[i]] to order[begins[i + 1] - 1].
struct FormedEpoch {
  std::vector<std::uint32_t> order;
  std::vector<std::size_t> begins;  // one more than there are micro-batches

  std::int64_t micro_batches() const { return static_cast<std::int64_t>(begins.size()) - 1; }
  std::span<const std::uint32_t> operator[](std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    return std::span(order).subspan(begins[at], begins[at + 1] - begins[at]);
  }
};

// In the given order, each micro-batch takes samples as long as all their tokens stay within the budget, and at least
// one: a sample longer than the budget stands alone.
FormedEpoch packed(std::vector<std::uint32_t> order, std::span<const std::int32_t> lengths, std::int64_t token_budget);

// The first `samples` of the order, a multiple of `size`, sorted by length (equal ones as they stand) and cut into
// micro-batches of `size`, which come in an order that the stream draws.
FormedEpoch bucketed(std::vector<std::uint32_t> order, std::span<const std::int32_t> lengths, std::int64_t samples,
                     std::int64_t size, const RandomStream& stream);

}  // namespace syncopate
