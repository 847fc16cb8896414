// Compression of gradients: what workers send instead of a gradient, and how all workers decode it. Works on flat
// vectors of whole gradients. Packets are words of four bytes. Equal inputs give equal bits on any machine and with any
// number of threads.
//
// A step has one or two exchanges. A worker's vector p is its gradient plus its residual. Encoding leaves in p the
// values that were not sent; with error feedback this p is the next residual. So, over all steps
// (compression_test.cpp): sum of sent values = sum of gradients + first residual - last residual.
//
// The operation of the first of two exchanges determines the second:
// - all-reduce: all workers know the sum before they encode their second packet (PowerSGD), or do not need it (dense
//   parts of DGC);
// - broadcast: only the root encodes, and all workers know its packet before they encode the second one (ScaleCom);
// - all-to-all: the owner of a chunk receives all workers' packets of the chunk, and encodes their sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "workers/base/units.hpp"
#include "workers/compression/options.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

inline Bytes bytes_of_words(std::size_t words) { return Bytes{static_cast<Bytes::Rep>(4 * words)}; }

// A part of the gradient that is compressed separately.
struct Part {
  std::size_t offset = 0;
  std::size_t size = 0;
  std::size_t rows = 0;     // rows of a matrix; 0: not a matrix
  std::size_t columns = 0;  // columns of the matrix; also set in a piece of a matrix, where rows = 0
  // Index in the whole gradient. It selects random numbers, because `offset` may count from the start of a chunk.
  std::size_t place = 0;
  std::string name{};  // name of the tensor
};

struct CompressorInput {
  const CompressionOptions& options;
  std::vector<Part> parts;
  std::uint64_t seed = 0;
  int workers = 1;
};

// Results of a step's exchanges.
struct Received {
  std::span<const float* const> packets;  // last exchange: all packets by rank, or only their sum
  const float* between = nullptr;         // first exchange of two: its prepared sum, or the root's packet
  const float* common = nullptr;          // as in encode()
  int workers = 1;
  std::int64_t micro_batches = 0;  // total of all workers in the sum
  Step step{};
};

class Compressor {
 public:
  explicit Compressor(const CompressorInput& input) : options_(input.options), seed_(input.seed) {}
  virtual ~Compressor() = default;

  const CompressionOptions& options() const { return options_; }
  virtual std::vector<Exchange> exchanges(Step) const { return exchanges_; }
  // The steps at which exchanges change. After the last change, even and odd steps may differ.
  virtual std::vector<Step> changes() const { return {Step{0}}; }
  // The number of vectors as long as the gradient that a worker keeps. Together they are called memory below; one is p.
  virtual std::size_t vectors() const { return 1; }

  // Whether, and how, a worker's gradient (a sum over `micro_batches`) is clipped before it is accumulated.
  virtual bool clips() const { return false; }
  virtual void clip(std::span<float>, std::int64_t /*micro_batches*/) const {}
  // Computes p = of_memory x memory + gradient for a piece of the gradient that begins at index `at`. Kinds with more
  // vectors than p update them, too.
  virtual void accumulate(std::span<const float> gradient, std::size_t at, float of_memory,
                          std::span<float> memory) const;
  // After the exchanges: adds a piece of a gradient that the step left out to the values that its worker has not sent.
  virtual void fold(std::span<const float> gradient, std::size_t at, std::span<float> memory) const {
    accumulate(gradient, at, 1, memory);
  }

  // Encodes the first packet. `common`: the sum at the end of the previous step, null at the first step.
  virtual void encode(Rank worker, Step step, const float* common, std::span<float> memory, float* packet) const = 0;
  // Whether encoding reads `common`.
  virtual bool follows_common() const { return false; }
  // The sender of a broadcast.
  virtual Rank root(Step) const { return {}; }

  // The following functions serve the second of two packets, unless the first exchange is an all-to-all. prepare()
  // turns the sum of the first exchange into `between` for encode_second().
  virtual void prepare(float* /*sum*/) const {}
  virtual void encode_second(Step, const float* /*between*/, std::span<float> /*memory*/, float* /*packet*/) const {
    throw std::logic_error("this compressor sends one packet only");
  }
  // The number of words of the second packet, if it depends on the values (CompressionOptions::follows_values).
  virtual std::size_t second_words(std::span<const float> /*memory*/) const { return 0; }

  // After an all-to-all: the number of values in an owner's chunk, and the owner's packet, computed from all packets of
  // the chunk. `residual` has one number per value. On entry it is the residual of the owner's previous packet, on
  // return the residual of this packet.
  virtual std::size_t owned(Rank /*owner*/) const { return 0; }
  virtual void reduce(Rank /*owner*/, Step, std::span<const float* const> /*chunks*/, std::span<float> /*residual*/,
                      float* /*packet*/) const {
    throw std::logic_error("this compressor has no owners of chunks");
  }

  // Computes the sum over workers of what they have sent. `sum` must be all zeros on entry.
  virtual void decode(const Received& received, std::span<float> sum) const = 0;
  // Whether residuals depend on the results of the exchanges; if so, `correct` corrects a residual.
  virtual bool corrects_residual() const { return false; }
  virtual void correct(const Received&, std::span<float> /*memory*/) const {}

 protected:
  CompressionOptions options_;
  std::uint64_t seed_;
  std::vector<Exchange> exchanges_;
};

// One part per tensor that has values.
std::vector<Part> parts_of(std::span<const ParameterTensor> tensors);

// Throws RunFailure if none of the parts can be compressed.
std::shared_ptr<const Compressor> make_compressor(const CompressionOptions& options, std::vector<Part> parts,
                                                  std::uint64_t seed, int workers);
// One compressor per slice of the model. The border of two slices may lie inside a tensor.
std::vector<std::shared_ptr<const Compressor>> make_compressors(const CompressionOptions& options,
                                                                const Training& training, std::uint64_t seed,
                                                                int workers, int slices);

// The exchanges of each step's sum from step `first` on, until the next entry of a list or the end of the run.
struct ExchangesFrom {
  Step first{};
  std::vector<Exchange> exchanges;
  std::vector<Exchange> of_odd_steps{};  // exchanges of odd steps; empty: the same
  std::size_t vectors = 1;               // vectors that each worker keeps (Compressor::vectors)
};
// The exchanges of a run's steps; empty without compression. Throws as make_compressor does.
std::vector<ExchangesFrom> exchanges_of(const std::optional<CompressionOptions>& options,
                                        std::span<const ParameterTensor> tensors, Bytes parameters, int workers);

// How many of a run's steps have these exchanges.
struct StepsOfExchanges {
  std::int64_t steps = 0;
  const std::vector<Exchange>* exchanges = nullptr;  // an entry of the list
};
std::vector<StepsOfExchanges> shared_out(const std::vector<ExchangesFrom>& list, Step steps);

}  // namespace syncopate
