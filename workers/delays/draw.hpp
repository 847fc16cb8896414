// One uniform number per micro-batch, turned into its delay.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "workers/random.hpp"

namespace syncopate {

// Calls add(uniforms, added_s) for the uniform numbers first, first + 1, ... of the stream, batch by batch.
template <typename Add>
void add_batches(const RandomStream& stream, std::uint32_t first, std::span<double> added_s, const Add& add) {
  thread_local std::array<double, 256> uniform;  // one for all fibers: on their stacks it would never be in the cache
  while (!added_s.empty()) {
    const auto now = added_s.first(std::min(added_s.size(), uniform.size()));
    const std::span<double> numbers(uniform.data(), now.size());
    stream.fill_uniform(first, numbers);
    add(std::span<const double>(numbers), now);
    first += static_cast<std::uint32_t>(now.size());
    added_s = added_s.subspan(now.size());
  }
}

// added_s[i] += delay_s(uniform number first + i of the stream). The function is inlined: a draw costs a few
// nanoseconds, which a call per draw would double.
template <typename Delay>
void add_draws(const RandomStream& stream, std::uint32_t first, std::span<double> added_s, const Delay& delay_s) {
  add_batches(stream, first, added_s, [&delay_s](std::span<const double> uniform, std::span<double> now) {
    for (std::size_t i = 0; i < now.size(); ++i) now[i] += delay_s(uniform[i]);
  });
}

}  // namespace syncopate
