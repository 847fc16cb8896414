// What is sent instead of a gradient, and what all make of it: the arithmetic of compression, on flat vectors of whole
// gradients. Packets are words of four bytes; equal inputs give equal bits on any machine and number of threads.
//
// A step has one exchange or two. A worker's vector p is its gradient with its residual; encoding leaves in p what was
// not sent, which is the next residual where there is error feedback. Telescoping, over all steps:
// sum of what was sent = sum of gradients + first residual - last residual (tests/algorithms/compression_test.cpp).
//
// By the operation of the first of two exchanges:
// - all-reduce: all know the sum before they encode their second packet (PowerSGD), or need not (dense parts of DGC);
// - broadcast: the root alone encodes, and all know its packet before they encode the second (ScaleCom);
// - all-to-all: the owner of a chunk gets everybody's packets of it, and encodes their sum.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "workers/base/units.hpp"
#include "workers/compression/options.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

// What has come back from a step's exchanges.
struct Received {
  std::span<const float* const> packets;  // of the last exchange: everybody's by rank, or the sum alone
  const float* between = nullptr;         // of the first of two: its sum, prepared, or the root's packet
  const float* common = nullptr;          // as what was sent was encoded with
  int workers = 1;
  std::int64_t micro_batches = 0;  // of all workers, in the sum
  Step step{};
};

class Compressor {
 public:
  Compressor(CompressionOptions options, std::uint64_t seed) : options_(std::move(options)), seed_(seed) {}
  virtual ~Compressor() = default;

  const CompressionOptions& options() const { return options_; }
  virtual std::vector<Exchange> exchanges(Step) const { return exchanges_; }
  // Vectors as long as the gradient that a worker keeps, p among them. They are what is called memory below.
  virtual std::size_t vectors() const { return 1; }

  // Whether a worker's gradient, the sum of so many micro-batches', is clipped before anything is made of it; and that.
  virtual bool clips() const { return false; }
  virtual void clip(std::span<float> gradient, std::int64_t micro_batches) const;
  // Makes p of a piece of the gradient that begins at `at`, and of what the memory holds.
  virtual void take_in(std::span<const float> gradient, std::size_t at, float of_memory, std::span<float> memory) const;
  // Whether p is of_memory times what the memory holds, and the gradient added.
  virtual bool takes_in_by_adding() const { return true; }
  // Adds a piece of a gradient that a step has left out to what its worker has not sent, after the exchanges.
  virtual void fold(std::span<const float> gradient, std::size_t at, std::span<float> memory) const;

  // The first packet. `common`: the sum that ended the step before, null at the first step.
  virtual void encode(Rank worker, Step step, const float* common, std::span<float> memory, float* packet) const = 0;
  // Whether `common` is looked at.
  virtual bool follows_common() const { return false; }
  // Of a broadcast: whose packet all get.
  virtual Rank root(Step) const { return {}; }

  // Of two exchanges, where the first is no all-to-all: what all make of its sum, in its place, and the second packet.
  virtual void prepare(float* sum) const;
  // Where the second packet's size follows from what is in it: so many words.
  virtual bool has_own_sizes() const { return false; }
  virtual std::size_t second_words(std::span<const float> memory) const;
  virtual void encode_second(Step step, const float* between, std::span<float> memory, float* packet) const;

  // Where it is one: how many values an owner's chunk has; and what it makes of everybody's packets of the chunk.
  // `residual`: of the owner's last packet, so many values, and in its place what this one leaves.
  virtual std::size_t owned(Rank owner) const;
  virtual void reduce(Rank owner, Step step, std::span<const float* const> chunks, std::span<float> residual,
                      float* packet) const;

  // The sum over workers of what they have sent; `sum` is all zeros.
  virtual void decode(const Received& received, std::span<float> sum) const = 0;
  // Whether a residual depends on what has come back, and what is then taken out of it.
  virtual bool corrects_residual() const { return false; }
  virtual void correct(const Received& received, std::span<float> memory) const;

 protected:
  CompressionOptions options_;
  std::uint64_t seed_;
  std::vector<Exchange> exchanges_;
};

// Part of the gradient that is compressed by itself.
struct Part {
  std::size_t offset = 0;
  std::size_t size = 0;
  std::size_t rows = 0;     // of a matrix; 0: it is none
  std::size_t columns = 0;  // of a matrix; a piece of one has them too, and no rows
  std::size_t place = 0;    // in the whole gradient, by which numbers are drawn, where `offset` counts from a chunk
};

// Of a model with these tensors, or of so many parameters where they do not matter. Throws RunFailure where `options`
// name tables of which there is none.
std::vector<Part> parts_of(const CompressionOptions& options, std::span<const ParameterTensor> tensors,
                           Bytes parameters);

// For the training's model. Throws RunFailure where no part of the model can be compressed so.
std::shared_ptr<const Compressor> make_compressor(const CompressionOptions& options, const Training& training,
                                                  std::uint64_t seed, int workers);
// The same for these parts.
std::shared_ptr<const Compressor> make_compressor(const CompressionOptions& options, std::vector<Part> parts,
                                                  std::uint64_t seed, int workers);

// One for each of so many slices of the model, which cut tensors; of one the same.
std::vector<std::shared_ptr<const Compressor>> make_compressors(const CompressionOptions& options,
                                                                const Training& training, std::uint64_t seed,
                                                                int workers, int slices);

// What sums take from `first` on, until the next one of a list, or for the rest of a run.
struct ExchangesFrom {
  Step first{};
  std::vector<Exchange> exchanges;
  std::vector<Exchange> of_odd_steps{};  // where these have others; else empty
};
// Of a run's steps, most of which differ in nothing; empty: there is no compression. Throws as make_compressor does.
std::vector<ExchangesFrom> exchanges_of(const std::optional<CompressionOptions>& options,
                                        std::span<const ParameterTensor> tensors, Bytes parameters, int workers);

// How many of so many steps have which of them.
struct StepsOfExchanges {
  std::int64_t steps = 0;
  const std::vector<Exchange>* exchanges = nullptr;  // in the list
};
std::vector<StepsOfExchanges> shared_out(const std::vector<ExchangesFrom>& list, Step steps);

// How long packets are, in words of four bytes.
constexpr std::size_t words_of_bits(std::size_t bits) { return (bits + 31) / 32; }

// Of `size` values, at least one.
inline std::size_t kept_of(double ratio, std::size_t size) {
  // The small addend keeps a whole number whole that the product has left just below.
  const auto kept = static_cast<std::size_t>(ratio * static_cast<double>(size) + 1e-9);
  return std::min(size, std::max<std::size_t>(1, kept));
}

// The narrowest of 2, 4 and 8 bits that holds -s .. s.
constexpr std::size_t bits_of_levels(int levels) { return levels == 1 ? 2 : levels <= 7 ? 4 : 8; }

// Bins of eight-bit packets.
inline constexpr std::size_t bins_of_bytes = 256;

// Of one part of the gradient as signs or levels.
std::size_t packet_words(const CompressionOptions& options, std::size_t size);

inline Bytes bytes_of_words(std::size_t words) { return Bytes{static_cast<Bytes::Rep>(4 * words)}; }

// Packets of eight or four bits per value, as outer gradients are sent in.
// Eight bits: 256 uniform bins over mean +- range_std standard deviations, each of which stands for the mean of the
// values in it. What lies outside is in the outermost bins.
// Source:  INTELLECT-1 (Prime Intellect 2024), after the uniform 8-bit code of hivemind.
// Cost:    all-gather of a byte per value, and of 1,024 bytes for the means of the bins: as many bytes as a dense sum
//          of 8 workers; `exchange = "two-phase"`: a quarter of a dense sum's, of any number, and the means of N
//          chunks.
// Differs: accounts of INTELLECT-1 say mean +- 6 standard deviations; in hivemind's code 6 of them are the whole range,
//          from -3 to +3, which is the default (`range_std`). The code rounds to the middle of a bin, and takes the
//          standard deviation of a sample; here that of all values, and bins are cut at their edges. The range is that
//          of the whole model unless `scope` says otherwise (there: of each tensor). There is no residual unless
//          `error_feedback` asks for one.
class UniformBins : public Compressor {
 public:
  UniformBins(const CompressionOptions& options, std::vector<Part> parts, std::uint64_t seed);

  void encode(Rank worker, Step step, const float* common, std::span<float> p, float* packet) const override;
  void decode(const Received& received, std::span<float> sum) const override;

 private:
  std::vector<Part> parts_;
};

// Four bits: a sign and three bits of exponent, no mantissa. A bucket of values has a scale, its largest magnitude s;
// values are 0 and +- s 2^-k, k = 0 .. 6.
// Source:  after Streaming DiLoCo (Douillard et al. 2025), which sends outer gradients as 4-bit floats.
// Cost:    all-gather of half a byte per value and 4 bytes per bucket; or in two phases.
// Differs: that theirs has three bits of exponent (E3M0) is not established, nor is how it rounds and scales: buckets,
//          the scale, a zero instead of the smallest exponent, and both roundings (`rounding`: to the nearest, the
//          larger one of two; or up or down at random, right on average) are this project's. There is no residual, as
//          there, unless `error_feedback` asks for one.
class FourBitFloats : public Compressor {
 public:
  FourBitFloats(const CompressionOptions& options, std::vector<Part> parts, std::uint64_t seed);

  void encode(Rank worker, Step step, const float* common, std::span<float> p, float* packet) const override;
  void decode(const Received& received, std::span<float> sum) const override;

 private:
  std::size_t bucket() const { return static_cast<std::size_t>(options_.bucket); }
  std::size_t buckets(std::size_t size) const { return (size + bucket() - 1) / bucket(); }

  std::vector<Part> parts_;  // one
};

}  // namespace syncopate
