// Two phases: every worker owns a chunk of the gradient, an Nth. It gets everybody's packets of the chunk, adds up what
// they stand for in single precision, and sends the sum, compressed again, to all.
// Source:  the exchange of 1-bit SGD (Seide et al. 2014) and of 1-bit Adam's code (Tang et al. 2021). That the former's
//          owners keep a residual too is from accounts of it, not from its text.
// Shapes:  chunks of ceil(d / N) values, the last ones shorter or empty. Each is compressed by itself, with a scale,
//          means and buckets of its own; of a matrix that is cut, each piece has all columns that reach into it.
// Cost:    all-to-all of N packets of a chunk, and all-gather of N: 2 (N - 1) packets per worker, where an all-gather
//          moves N - 1 packets of the whole, N times as long. Packets are as long as the longest.
// Differs: what the second compression misses is the owner's residual, where there is error feedback; an owner that
//          loses its state loses it too. An owner adds its own chunk in as it sends it, not as it is.
// Checks:  telescoping with both residuals; exact packets give the exact sum.
#pragma once

#include <memory>
#include <vector>

#include "workers/compression/compressor.hpp"

namespace syncopate {

class TwoPhase : public Compressor {
 public:
  TwoPhase(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed, int workers);

  void encode(Rank worker, Step step, const float* common, std::span<float> p, float* packet) const override;
  std::size_t owned(Rank owner) const override { return chunks_[static_cast<std::size_t>(owner.value)].size; }
  void reduce(Rank owner, Step step, std::span<const float* const> chunks, std::span<float> residual,
              float* packet) const override;
  void decode(const Received& received, std::span<float> sum) const override;

 private:
  struct Chunk {
    std::size_t offset = 0;
    std::size_t size = 0;
    std::shared_ptr<const Compressor> compressor{};  // of its values; null: it has none
  };

  std::vector<Chunk> chunks_;
  std::size_t words_ = 0;  // of a packet of one
};

}  // namespace syncopate
