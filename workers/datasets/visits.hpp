// Which samples a batch holds, and in which epoch each of them is met. Whatever is drawn for a sample (how its image is
// changed, which of its activations are dropped) is a function of the seed, the sample and the epoch alone, so that all
// methods meet the same, with any number of workers and any grouping into batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "workers/random/random.hpp"

namespace syncopate {

struct Visits {
  std::uint64_t seed = 0;
  std::span<const std::uint32_t> samples;  // (n,)
  std::span<const std::int64_t> epochs;    // (n,)

  std::size_t size() const { return samples.size(); }

  // What is drawn for the i-th. A stream's worker is the sample: its number's bits, which may be above 2^31.
  RandomStream stream(Purpose purpose, std::size_t i) const {
    return {.seed = seed, .purpose = purpose, .worker = Rank{static_cast<int>(samples[i])}, .step = epochs[i]};
  }
};

}  // namespace syncopate
