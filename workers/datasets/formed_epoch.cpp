#include "workers/datasets/formed_epoch.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "workers/random/permutation.hpp"

namespace syncopate {

FormedEpoch packed(std::vector<std::uint32_t> order, std::span<const std::int32_t> lengths, std::int64_t token_budget) {
  FormedEpoch formed{.order = std::move(order), .begins = {0}};
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < formed.order.size(); ++i) {
    const std::int64_t length = lengths[formed.order[i]];
    if (i > formed.begins.back() && tokens + length > token_budget) {
      formed.begins.push_back(i);
      tokens = 0;
    }
    tokens += length;
  }
  if (!formed.order.empty()) formed.begins.push_back(formed.order.size());
  return formed;
}

FormedEpoch bucketed(std::vector<std::uint32_t> order, std::span<const std::int32_t> lengths, std::int64_t samples,
                     std::int64_t size, const RandomStream& stream) {
  order.resize(static_cast<std::size_t>(samples));
  std::ranges::stable_sort(order, {}, [&](std::uint32_t sample) { return lengths[sample]; });
  const auto count = static_cast<std::size_t>(samples / size), length = static_cast<std::size_t>(size);
  FormedEpoch formed{.order = {}, .begins = {0}};
  formed.order.reserve(order.size());
  for (const std::uint32_t bucket : permutation(stream, count)) {
    const auto begin = order.begin() + static_cast<std::ptrdiff_t>(bucket * length);
    formed.order.insert(formed.order.end(), begin, begin + static_cast<std::ptrdiff_t>(length));
    formed.begins.push_back(formed.order.size());
  }
  return formed;
}

}  // namespace syncopate
