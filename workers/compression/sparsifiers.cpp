#include "workers/compression/sparsifiers.hpp"

#include <algorithm>
#include <bit>

#include "workers/compression/packet_sizes.hpp"
#include "workers/compression/top_k.hpp"
#include "workers/random/random.hpp"

namespace syncopate {
namespace {

std::size_t words_of(const CompressionOptions& options, const std::vector<Part>& parts) {
  std::size_t words = 0;
  for (const Part& part : parts) words += packet_words(options, part.size);
  return words;
}

}  // namespace

TopK::TopK(const CompressionOptions& options, std::vector<Part> parts, std::uint64_t seed)
    : Compressor(options, seed), parts_(std::move(parts)) {
  exchanges_ = {{Operation::all_gather, bytes_of_words(words_of(options, parts_))}};
}

// Per part: the places, then the values.
void TopK::encode(Rank, Step, const float*, std::span<float> p, float* packet) const {
  for (const Part& part : parts_) {
    const std::size_t kept = kept_of(options_.ratio, part.size);
    const std::span<float> values = p.subspan(part.offset, part.size);
    for (const std::uint32_t place : largest_magnitudes(values, kept)) {
      *packet = std::bit_cast<float>(static_cast<std::uint32_t>(part.offset) + place);
      packet[kept] = std::exchange(values[place], 0.0f);
      ++packet;
    }
    packet += kept;
  }
}

void TopK::decode(const Received& received, std::span<float> sum) const {
  for (const float* packet : received.packets)
    for (const Part& part : parts_) {
      const std::size_t kept = kept_of(options_.ratio, part.size);
      for (std::size_t i = 0; i < kept; ++i) sum[std::bit_cast<std::uint32_t>(packet[i])] += packet[kept + i];
      packet += 2 * kept;
    }
}

void DeepGradientCompression::encode(Rank worker, Step step, const float* common, std::span<float> p,
                                     float* packet) const {
  const std::span<float> sums = p.first(p.size() / 2), velocity = p.last(p.size() / 2);
  TopK::encode(worker, step, common, sums, packet);
  if (!options_.masking) return;
  for (const Part& part : parts_) {
    const std::size_t kept = kept_of(options_.ratio, part.size);
    for (std::size_t i = 0; i < kept; ++i) velocity[std::bit_cast<std::uint32_t>(packet[i])] = 0;
    packet += 2 * kept;
  }
}

RandomK::RandomK(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed)
    : Compressor(options, seed), size_(parts.front().size), kept_(kept_of(options.ratio, size_)) {
  exchanges_ = {exchange_of_whole(options, size_)};
}

// Floyd's algorithm, with a bit per place.
std::vector<std::uint32_t> RandomK::places(Step step) const {
  std::vector<double> uniform(kept_);
  RandomStream{.seed = seed_, .purpose = Purpose::compression, .stream = 0, .worker = {}, .step = step}.fill_uniform(
      0, uniform);
  std::vector<bool> is_drawn(size_);
  std::vector<std::uint32_t> places;
  places.reserve(kept_);
  for (std::size_t i = 0; i < kept_; ++i) {
    const std::size_t top = size_ - kept_ + i;
    const std::size_t drawn = std::min(top, static_cast<std::size_t>(uniform[i] * static_cast<double>(top + 1)));
    const std::size_t place = is_drawn[drawn] ? top : drawn;
    is_drawn[place] = true;
    places.push_back(static_cast<std::uint32_t>(place));
  }
  return places;
}

void RandomK::encode(Rank, Step step, const float*, std::span<float> p, float* packet) const {
  const float scale =
      options_.error_feedback ? 1 : static_cast<float>(static_cast<double>(size_) / static_cast<double>(kept_));
  for (const std::uint32_t place : places(step)) *packet++ = scale * std::exchange(p[place], 0.0f);
}

void RandomK::decode(const Received& received, std::span<float> sum) const {
  const float* value = received.packets.front();
  for (const std::uint32_t place : places(received.step)) sum[place] = *value++;
}

}  // namespace syncopate
