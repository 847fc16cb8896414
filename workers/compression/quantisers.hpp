// Packets with fewer bits per value: signs, and a few levels.
#pragma once

#include <vector>

#include "workers/compression/compressor.hpp"

namespace syncopate {

// EF-signSGD: signs times the mean magnitude.
// Source:  Karimireddy et al. 2019, "Error Feedback Fixes SignSGD".
// Cost:    all-gather of a bit per value and 4 bytes; or in two phases (two_phase.hpp).
// Differs: over workers the mean of what each has sent is taken, which the paper's one process leaves open; the mean
//          magnitude is that of the whole model unless `scope` says otherwise (the paper's code: of each tensor); the
//          sign of 0 is +1 (there 0).
class ScaledSign : public Compressor {
 public:
  ScaledSign(const CompressionOptions& options, std::vector<Part> parts, std::uint64_t seed);

  void encode(Rank worker, Step step, const float* common, std::span<float> p, float* packet) const override;
  void decode(const Received& received, std::span<float> sum) const override;

 private:
  std::vector<Part> parts_;
};

// signSGD and Signum with majority vote: the step is along the sign of the sum of signs.
// Source:  Bernstein et al. 2018, "signSGD: Compressed Optimisation for Non-Convex Problems"; 2019, "signSGD with
//          Majority Vote is Communication Efficient and Fault Tolerant".
// Cost:    all-gather of a bit per value and 4 bytes, by which all learn of a gradient that is not finite; twice that
//          where zeros abstain.
// Differs: a tie gives 0 (their code: +1 in one decoder, 0 in another); the sign of a value of 0 is +1, so that what no
//          worker has a gradient of moves by the rate, such as rows of words that a step does not have. With `zeros =
//          "abstain"` it is 0, as in the formula, which a bit cannot tell. A worker of whom nothing counts abstains:
//          all is 0 (with momentum it votes by its average). Votes are gathered, not counted by a server. There is no
//          residual: with momentum, a worker's state is its average. The step is the rate times the share of
//          micro-batches that count, if a method divides by all of them.
class MajorityVote : public Compressor {
 public:
  MajorityVote(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed);

  void encode(Rank worker, Step step, const float* common, std::span<float> p, float* packet) const override;
  void decode(const Received& received, std::span<float> sum) const override;
};

// QSGD: each value is rounded up or down at random to a multiple of its bucket's norm / s, right on average.
// Source:  Alistarh et al. 2017, "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding".
// Cost:    all-gather of 2, 4 or 8 bits per value and 4 bytes per bucket; or in two phases (two_phase.hpp).
// Differs: levels are packed with a fixed number of bits, without Elias coding; a bucket of zeros is zeros.
class Qsgd : public Compressor {
 public:
  Qsgd(const CompressionOptions& options, std::vector<Part> parts, std::uint64_t seed);

  void encode(Rank worker, Step step, const float* common, std::span<float> p, float* packet) const override;
  void decode(const Received& received, std::span<float> sum) const override;

 private:
  std::size_t buckets(std::size_t size) const;

  std::vector<Part> parts_;
};

}  // namespace syncopate
