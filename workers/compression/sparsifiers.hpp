// Sparse packets: few values of a gradient, the largest or random ones.
// Source:  top-k: Aji and Heafield 2017, "Sparse Communication for Distributed Gradient Descent"; Stich, Cordonnier,
//          Jaggi 2018, "Sparsified SGD with Memory". Random-k: the latter.
// Cost:    top-k: all-gather of 8 bytes (place and value) per value kept; random-k: all-reduce of 4.
// Differs: top-k is that of the whole model unless `scope` says otherwise; ties go to the lowest place. Random places
//          are drawn without replacement from a stream of their own, the same on all workers, and do not count twice.
#pragma once

#include <vector>

#include "workers/compression/compressor.hpp"

namespace syncopate {

class TopK : public Compressor {
 public:
  TopK(const CompressionOptions& options, std::vector<Part> parts, std::uint64_t seed);

  void encode(Rank worker, Step step, const float* common, std::span<float> p, float* packet) const override;
  void decode(const Received& received, std::span<float> sum) const override;

 protected:
  std::vector<Part> parts_;
};

// Top-k with momentum correction: u = m u + g and p = p + u, of which the largest are sent; with masking what is sent
// is 0 in u too. The optimizer steps along the mean of what was sent, and needs no momentum of its own.
// Source:  Lin, Han, Mao, Wang, Dally 2018, "Deep Gradient Compression".
// Differs: exact top-k, theirs from a sampled threshold; of all tensors, theirs sends those of one dimension whole; the
//          ratio is that of the file from the first step, without their warm-up; no clipping, no Nesterov.
class DeepGradientCompression : public TopK {
 public:
  using TopK::TopK;

  // p has u after it.
  void encode(Rank worker, Step step, const float* common, std::span<float> p, float* packet) const override;
};

// With error feedback what is sent is the value; without it the value times 1 / ratio, which is right on average.
class RandomK : public Compressor {
 public:
  RandomK(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed);

  void encode(Rank worker, Step step, const float* common, std::span<float> p, float* packet) const override;
  void decode(const Received& received, std::span<float> sum) const override;

 private:
  std::vector<std::uint32_t> places(Step step) const;

  std::size_t size_;
  std::size_t kept_;
};

}  // namespace syncopate
