// Packets of eight or four bits per value, as outer gradients are sent in.
#pragma once

#include <vector>

#include "workers/compression/compressor.hpp"

namespace syncopate {

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
