// The tokens of a sample, for tests of data sets that have all tokens in memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "workers/data/dataset.hpp"

namespace syncopate {

// The result is valid as long as the data set exists.
inline std::span<const std::int32_t> sample_tokens(const Dataset& dataset, Split split, std::uint32_t sample) {
  std::vector<std::int32_t> unused;
  return dataset.tokens(split, sample, {}, unused);
}

}  // namespace syncopate
