#include "workers/compression/packet_sizes.hpp"

#include <stdexcept>

namespace syncopate {

using Kind = CompressionOptions::Kind;

std::size_t packet_words(const CompressionOptions& options, std::size_t size) {
  switch (options.kind) {
    case Kind::sign:  // the mean magnitude
      return 1 + words_of_bits(size);
    case Kind::majority:  // whether the gradient is finite
      return (options.zeros_abstain ? 2 : 1) * (1 + words_of_bits(size));
    case Kind::qsgd: {
      const auto bucket = static_cast<std::size_t>(options.bucket);
      return (size + bucket - 1) / bucket + words_of_bits(size * bits_of_levels(options.levels));
    }
    case Kind::int8:  // the bins' means
      return bins_of_bytes + words_of_bits(8 * size);
    case Kind::fp4: {
      const auto bucket = static_cast<std::size_t>(options.bucket);
      return (size + bucket - 1) / bucket + words_of_bits(4 * size);
    }
    default:
      break;
  }
  throw std::logic_error("these packets are no signs or levels");
}

}  // namespace syncopate
