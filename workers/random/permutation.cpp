#include "workers/random/permutation.hpp"

#include <numeric>
#include <utility>

namespace syncopate {

std::vector<std::uint32_t> permutation(const RandomStream& stream, std::size_t size, std::uint32_t first) {
  std::vector<double> uniform(size);
  stream.fill_uniform(first, uniform);
  std::vector<std::uint32_t> order(size);
  std::iota(order.begin(), order.end(), 0u);
  for (std::size_t last = size; last-- > 1;)
    std::swap(order[last], order[static_cast<std::size_t>(uniform[last] * static_cast<double>(last + 1))]);
  return order;
}

}  // namespace syncopate
