// What is sent instead of a gradient, and what all make of it: the arithmetic of compression, on flat vectors of whole
// gradients. Packets are words of four bytes; equal inputs give equal bits on any machine and number of threads.
//
// A step has one exchange, or, by PowerSGD, two. A worker's vector p is its gradient with its residual; encoding leaves
// in p what was not sent, which is the next residual where there is error feedback. Telescoping, over all steps:
// sum of what was sent = sum of gradients + first residual - last residual (tests/algorithms/compression_test.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "workers/compression/options.hpp"
#include "workers/training/training.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// What has come back from a step's exchanges.
struct Received {
  std::span<const float* const> packets;  // of the last exchange: everybody's by rank, or the sum alone
  const float* between = nullptr;         // of the first of two: its sum, prepared
  int workers = 1;
  std::int64_t micro_batches = 0;  // of all workers, in the sum
  Step step{};
};

class Compressor {
 public:
  Compressor(CompressionOptions options, std::uint64_t seed) : options_(std::move(options)), seed_(seed) {}
  virtual ~Compressor() = default;

  const CompressionOptions& options() const { return options_; }
  const std::vector<Exchange>& exchanges() const { return exchanges_; }
  // Vectors as long as the gradient that a worker keeps, of which p is the first: DGC has a velocity besides.
  std::size_t vectors() const { return options_.kind == CompressionOptions::Kind::dgc ? 2 : 1; }

  // The first packet. `common`: the sum that ended the step before, null at the first step.
  virtual void encode(Rank worker, Step step, const float* common, std::span<float> p, float* packet) const = 0;
  // Of two exchanges: what all make of the first one's sum, in its place, and the second packet.
  virtual void prepare(float* sum) const;
  virtual void encode_second(const float* between, std::span<float> p, float* packet) const;

  // The sum over workers of what they have sent; `sum` is all zeros.
  virtual void decode(const Received& received, std::span<float> sum) const = 0;
  // Whether a residual depends on what has come back, and what is then taken out of it.
  virtual bool corrects_residual() const { return false; }
  virtual void correct(const Received& received, std::span<float> p) const;

 protected:
  CompressionOptions options_;
  std::uint64_t seed_;
  std::vector<Exchange> exchanges_;
};

// Part of the gradient that is compressed by itself.
struct Part {
  std::size_t offset = 0;
  std::size_t size = 0;
  std::size_t rows = 0;  // of a matrix; 0: it is none
};

// For the training's model, or, in time-only runs, for its number of parameters. Throws RunFailure where no part of the
// model can be compressed so.
std::shared_ptr<const Compressor> make_compressor(const CompressionOptions& options, const Training& training,
                                                  std::uint64_t seed);
// The same for these parts.
std::shared_ptr<const Compressor> make_compressor(const CompressionOptions& options, std::vector<Part> parts,
                                                  std::uint64_t seed);

}  // namespace syncopate
