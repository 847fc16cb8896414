#include "workers/delays/drawn_delay.hpp"

#include <algorithm>
#include <array>

namespace syncopate {
namespace {

// One for all fibers: on their stacks it would never be in the cache.
thread_local std::array<double, 512> uniform_numbers;

}  // namespace

void DrawnDelay::add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const {
  while (!added_s.empty()) {
    const auto now = added_s.first(std::min(added_s.size(), uniform_numbers.size()));
    const std::span<double> numbers(uniform_numbers.data(), now.size());
    stream.fill_uniform(first, numbers);
    add_quantiles(numbers, now);
    first += static_cast<std::uint32_t>(now.size());
    added_s = added_s.subspan(now.size());
  }
}

void DrawnDelay::add_rows(const RandomRows& rows, std::uint32_t first, std::span<double> added_s) const {
  const std::size_t length = added_s.size() / rows.count;
  if (length == 0) return;
  const std::size_t at_once = uniform_numbers.size() / length;
  if (at_once <= 1) return DelayProcess::add_rows(rows, first, added_s);
  for (std::size_t begin = 0; begin < rows.count; begin += at_once) {
    const std::size_t count = std::min(at_once, rows.count - begin);
    const std::span<double> numbers(uniform_numbers.data(), count * length);
    rows.part(begin, count).fill_uniform(first, numbers);
    add_quantiles(numbers, added_s.subspan(begin * length, count * length));
  }
}

}  // namespace syncopate
