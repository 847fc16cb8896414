#include "workers/compression/packet_sizes.hpp"

#include <stdexcept>

namespace syncopate {

using Kind = CompressionOptions::Kind;

std::size_t packet_words(const CompressionOptions& options, std::size_t size) {
  switch (options.kind) {
    case Kind::top_k:  // a place and a value each
    case Kind::dgc:
      return 2 * kept_of(options.ratio, size);
    case Kind::random_k:
      return kept_of(options.ratio, size);
    case Kind::sign:      // the mean magnitude
    case Kind::majority:  // whether the gradient is finite
      return 1 + words_of_bits(size);
    case Kind::qsgd: {
      const auto bucket = static_cast<std::size_t>(options.bucket);
      return (size + bucket - 1) / bucket + words_of_bits(size * bits_of_levels(options.levels));
    }
    case Kind::power:
      break;
  }
  throw std::logic_error("PowerSGD's packets are those of matrices");
}

Exchange exchange_of_whole(const CompressionOptions& options, std::size_t size) {
  const bool is_summed = options.kind == Kind::random_k;
  return {is_summed ? Operation::all_reduce : Operation::all_gather, bytes_of_words(packet_words(options, size))};
}

}  // namespace syncopate
