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
  TopK(const CompressionOptions& options, std::vector<Part> parts, std::uint64_t seed)
      : Compressor(options, seed), parts_(std::move(parts)) {}

  std::vector<Exchange> exchanges(Step step) const override;
  void encode(Rank worker, Step step, const float* common, std::span<float> p, float* packet) const override;
  void decode(const Received& received, std::span<float> sum) const override;

 protected:
  std::size_t kept_of_part(Step step, const Part& part) const;

  std::vector<Part> parts_;
};

// Top-k with momentum correction: u = m u + g and p = p + u, of which the largest are sent; with masking what is sent
// is 0 in u too. The optimizer steps along the mean of what was sent, and needs no momentum of its own.
// Source:  Lin, Han, Mao, Wang, Dally 2018, "Deep Gradient Compression"; their code.
// Cost:    as top-k; `dense_vectors` adds an all-reduce of the tensors of one dimension, before it.
// Differs: exact top-k, theirs from a sampled threshold; of the whole model unless `scope` says otherwise, theirs of
//          each tensor. Tensors of one dimension are among what is selected unless `dense_vectors` says, as their code,
//          that all of u is sent of them: their mean's momentum, as if the optimizer had it. The ratio holds from the
//          first step unless `warmup_ratios` has others; their code warms up over 0.316, 0.1, 0.0316, 0.01 and 0.00316
//          to 0.001, an epoch each, its page over 0.25, 0.063, 0.015 and 0.004.
//          With `nesterov`, as in their code, u = m (u + g) and p = p + u + g; the code's recipes choose, and here the
//          plain form is the default. `clip` bounds a worker's mean gradient before it is taken in, by the norm of the
//          whole, or as in their code the norm of each tensor or each value; their code's default is not to, and so it
//          is here. That the paper's bound is times N^(-1/2) (`clip_scaling`) is from memory of it, not established.
//          A gradient that is folded in is clipped by itself.
// Checks:  a golden recursion; ratio 1 without masking is momentum SGD, with `nesterov` Nesterov's.
class DeepGradientCompression : public TopK {
 public:
  DeepGradientCompression(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed,
                          int workers);

  std::vector<Exchange> exchanges(Step step) const override;
  // p has u after it.
  std::size_t vectors() const override { return 2; }
  bool clips() const override { return options_.clip.has_value(); }
  void clip(std::span<float> gradient, std::int64_t micro_batches) const override;
  void take_in(std::span<const float> gradient, std::size_t at, float of_memory,
               std::span<float> memory) const override;
  bool takes_in_by_adding() const override { return false; }
  void fold(std::span<const float> gradient, std::size_t at, std::span<float> memory) const override;
  void encode(Rank worker, Step step, const float* common, std::span<float> memory, float* packet) const override;
  void encode_second(Step step, const float* between, std::span<float> memory, float* packet) const override;
  void decode(const Received& received, std::span<float> sum) const override;

 private:
  void encode_largest(Step step, std::span<float> memory, float* packet) const;

  std::vector<Part> clipped_;  // by themselves
  double bound_ = 0;           // of each
  std::vector<Part> dense_;
  std::size_t dense_words_ = 0;
};

// With error feedback what is sent is the value; without it the value times 1 / ratio, which is right on average.
class RandomK : public Compressor {
 public:
  RandomK(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed)
      : Compressor(options, seed), size_(parts.front().size) {}

  std::vector<Exchange> exchanges(Step step) const override;
  void encode(Rank worker, Step step, const float* common, std::span<float> p, float* packet) const override;
  void decode(const Received& received, std::span<float> sum) const override;

 private:
  std::vector<std::uint32_t> places(Step step) const;

  std::size_t kept(Step step) const;

  std::size_t size_;
};

}  // namespace syncopate
