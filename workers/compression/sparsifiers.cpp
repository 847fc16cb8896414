#include "workers/compression/sparsifiers.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "workers/compression/packet_sizes.hpp"
#include "workers/compression/top_k.hpp"
#include "workers/process/run_failure.hpp"
#include "workers/random/random.hpp"
#include "workers/training/flat_arithmetic.hpp"

namespace syncopate {
std::size_t TopK::kept_of_part(Step step, const Part& part) const {
  return kept_of(options_.ratio_at(step), part.size);
}

std::vector<Exchange> TopK::exchanges(Step step) const {
  std::size_t kept = 0;
  for (const Part& part : parts_) kept += kept_of_part(step, part);
  return {{Operation::all_gather, bytes_of_words(2 * kept)}};  // a place and a value each
}

// Per part: the places, then the values.
void TopK::encode(Rank, Step step, const float*, std::span<float> p, float* packet) const {
  for (const Part& part : parts_) {
    const std::size_t kept = kept_of_part(step, part);
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
      const std::size_t kept = kept_of_part(received.step, part);
      for (std::size_t i = 0; i < kept; ++i) sum[std::bit_cast<std::uint32_t>(packet[i])] += packet[kept + i];
      packet += 2 * kept;
    }
}

DeepGradientCompression::DeepGradientCompression(const CompressionOptions& options, const std::vector<Part>& parts,
                                                 std::uint64_t seed, int workers)
    : TopK(options, {}, seed), clipped_(parts), bound_(options.clip.value_or(0)) {
  if (options.clip_by_workers) bound_ /= std::sqrt(workers);
  if (options.clipped_by == CompressionOptions::ClippedBy::norm)
    clipped_ = {{.offset = 0, .size = parts.back().offset + parts.back().size}};
  for (const Part& part : parts) (options.dense_vectors && part.rows == 0 ? dense_ : parts_).push_back(part);
  if (parts_.empty())
    throw RunFailure(options.written + "; must be false: the model has no matrix, so that nothing is compressed");
  if (options.scope == CompressionOptions::Scope::model) {  // matrices come first, without gaps (Objective)
    const std::size_t begin = parts_.front().offset, end = parts_.back().offset + parts_.back().size;
    parts_ = {{.offset = begin, .size = end - begin}};
  }
  for (const Part& part : dense_) dense_words_ += part.size;
}

std::vector<Exchange> DeepGradientCompression::exchanges(Step step) const {
  std::vector<Exchange> exchanges = TopK::exchanges(step);
  if (!dense_.empty()) exchanges.insert(exchanges.begin(), {Operation::all_reduce, bytes_of_words(dense_words_)});
  return exchanges;
}

void DeepGradientCompression::take_in(std::span<const float> gradient, std::size_t at, float,
                                      std::span<float> memory) const {
  const auto momentum = static_cast<float>(options_.momentum);
  float* const p = memory.data() + at;
  float* const u = p + memory.size() / 2;
  if (options_.nesterov)
    for (std::size_t i = 0; i < gradient.size(); ++i) p[i] += (u[i] = momentum * (u[i] + gradient[i])) + gradient[i];
  else
    for (std::size_t i = 0; i < gradient.size(); ++i) p[i] += u[i] = momentum * u[i] + gradient[i];
}

// What is no number stays what it is.
void DeepGradientCompression::clip(std::span<float> gradient, std::int64_t micro_batches) const {
  const double bound = bound_ * static_cast<double>(micro_batches);
  if (options_.clipped_by == CompressionOptions::ClippedBy::value) {
    const auto most = static_cast<float>(bound);
    for (float& value : gradient)
      if (std::abs(value) > most) value = std::copysign(most, value);
    return;
  }
  for (const Part& part : clipped_) {
    const double norm = std::sqrt(sum_of_squares(gradient.data() + part.offset, part.size));
    if (norm > bound) scale(gradient.data() + part.offset, static_cast<float>(bound / norm), part.size);
  }
}

// The step itself has had a gradient of zeros.
void DeepGradientCompression::fold(std::span<const float> gradient, std::size_t at, std::span<float> memory) const {
  float* const p = memory.data() + at;
  float* const u = p + memory.size() / 2;
  const auto of_velocity = options_.nesterov ? static_cast<float>(options_.momentum) : 1.0f;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    p[i] += options_.nesterov ? of_velocity * gradient[i] + gradient[i] : gradient[i];
    u[i] += of_velocity * gradient[i];
  }
}

void DeepGradientCompression::encode(Rank, Step step, const float*, std::span<float> memory, float* packet) const {
  if (dense_.empty()) return encode_largest(step, memory, packet);
  for (const Part& part : dense_) {
    const std::span<float> p = memory.subspan(part.offset, part.size);
    packet = std::ranges::copy(p, packet).out;
    std::ranges::fill(p, 0.0f);
  }
}

void DeepGradientCompression::encode_second(Step step, const float*, std::span<float> memory, float* packet) const {
  encode_largest(step, memory, packet);
}

void DeepGradientCompression::encode_largest(Step step, std::span<float> memory, float* packet) const {
  const std::span<float> p = memory.first(memory.size() / 2), velocity = memory.last(memory.size() / 2);
  TopK::encode({}, step, nullptr, p, packet);
  if (!options_.masking) return;
  for (const Part& part : parts_) {
    const std::size_t kept = kept_of_part(step, part);
    for (std::size_t i = 0; i < kept; ++i) velocity[std::bit_cast<std::uint32_t>(packet[i])] = 0;
    packet += 2 * kept;
  }
}

void DeepGradientCompression::decode(const Received& received, std::span<float> sum) const {
  TopK::decode(received, sum);
  const float* dense = received.between;
  for (const Part& part : dense_) {
    std::copy_n(dense, part.size, sum.data() + part.offset);
    dense += part.size;
  }
}

std::size_t RandomK::kept(Step step) const { return kept_of(options_.ratio_at(step), size_); }

std::vector<Exchange> RandomK::exchanges(Step step) const {
  return {{Operation::all_reduce, bytes_of_words(kept(step))}};
}

// Floyd's algorithm, with a bit per place.
std::vector<std::uint32_t> RandomK::places(Step step) const {
  const std::size_t kept = this->kept(step);
  std::vector<double> uniform(kept);
  RandomStream{.seed = seed_, .purpose = Purpose::compression, .stream = 0, .worker = {}, .step = step}.fill_uniform(
      0, uniform);
  std::vector<bool> is_drawn(size_);
  std::vector<std::uint32_t> places;
  places.reserve(kept);
  for (std::size_t i = 0; i < kept; ++i) {
    const std::size_t top = size_ - kept + i;
    const std::size_t drawn = std::min(top, static_cast<std::size_t>(uniform[i] * static_cast<double>(top + 1)));
    const std::size_t place = is_drawn[drawn] ? top : drawn;
    is_drawn[place] = true;
    places.push_back(static_cast<std::uint32_t>(place));
  }
  return places;
}

void RandomK::encode(Rank, Step step, const float*, std::span<float> p, float* packet) const {
  const float scale =
      options_.error_feedback ? 1 : static_cast<float>(static_cast<double>(size_) / static_cast<double>(kept(step)));
  for (const std::uint32_t place : places(step)) *packet++ = scale * std::exchange(p[place], 0.0f);
}

void RandomK::decode(const Received& received, std::span<float> sum) const {
  const float* value = received.packets.front();
  for (const std::uint32_t place : places(received.step)) sum[place] = *value++;
}

}  // namespace syncopate
