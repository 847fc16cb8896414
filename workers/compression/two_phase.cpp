#include "workers/compression/two_phase.hpp"

#include <algorithm>

#include "workers/compression/packet_sizes.hpp"

namespace syncopate {
namespace {

// What of the parts lies in a chunk, from whose beginning offsets count.
std::vector<Part> cut(const std::vector<Part>& parts, std::size_t begin, std::size_t end) {
  std::vector<Part> pieces;
  for (const Part& part : parts) {
    const std::size_t from = std::max(part.offset, begin), to = std::min(part.offset + part.size, end);
    if (from < to)
      pieces.push_back({.offset = from - begin, .size = to - from, .rows = 0, .columns = part.columns, .place = from});
  }
  return pieces;
}

}  // namespace

TwoPhase::TwoPhase(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed, int workers)
    : Compressor(options, seed) {
  CompressionOptions of_chunk = options;
  of_chunk.pattern = CompressionOptions::Pattern::gather;
  const std::size_t size = parts.back().offset + parts.back().size, owners = static_cast<std::size_t>(workers);
  const std::size_t most = (size + owners - 1) / owners;
  for (std::size_t owner = 0; owner < owners; ++owner) {
    const std::size_t begin = std::min(size, owner * most), end = std::min(size, begin + most);
    Chunk& chunk = chunks_.emplace_back(Chunk{.offset = begin, .size = end - begin});
    if (chunk.size == 0) continue;
    chunk.compressor = make_compressor(of_chunk, cut(parts, begin, end), seed, workers);
    const Bytes packet = chunk.compressor->exchanges({}).front().packet;
    words_ = std::max(words_, static_cast<std::size_t>(packet.value()) / 4);
  }
  exchanges_ = {{Operation::all_to_all, bytes_of_words(owners * words_)},
                {Operation::all_gather, bytes_of_words(words_)}};
}

void TwoPhase::encode(Rank worker, Step step, const float*, std::span<float> p, float* packet) const {
  std::fill_n(packet, chunks_.size() * words_, 0.0f);
  for (const Chunk& chunk : chunks_) {
    if (chunk.compressor) chunk.compressor->encode(worker, step, nullptr, p.subspan(chunk.offset, chunk.size), packet);
    packet += words_;
  }
}

// An owner draws at random as a rank of its own, behind those of the workers.
void TwoPhase::reduce(Rank owner, Step step, std::span<const float* const> chunks, std::span<float> residual,
                      float* packet) const {
  std::fill_n(packet, words_, 0.0f);
  const auto& compressor = chunks_[static_cast<std::size_t>(owner.value)].compressor;
  if (!compressor) return;
  compressor->decode({.packets = chunks, .workers = static_cast<int>(chunks.size()), .step = step}, residual);
  const Rank as_owner{owner.value + static_cast<int>(chunks_.size())};
  compressor->encode(as_owner, step, nullptr, residual, packet);
}

void TwoPhase::decode(const Received& received, std::span<float> sum) const {
  for (std::size_t owner = 0; owner < chunks_.size(); ++owner) {
    const Chunk& chunk = chunks_[owner];
    if (chunk.compressor)
      chunk.compressor->decode({.packets = received.packets.subspan(owner, 1), .workers = 1, .step = received.step},
                               sum.subspan(chunk.offset, chunk.size));
  }
}

}  // namespace syncopate
