// ScaleCom: at each step all send their values at the places where one worker's are largest, the leader's, who is
// another one at the next step. What all send can be added, and is as short with any number of workers.
// Source:  Chen et al. 2020, "ScaleCom: Scalable Sparsified Gradient Compression for Communication-Efficient
//          Distributed Training", by third parties' accounts and code.
// Cost:    a broadcast of k places and an all-reduce of k values, one after the other: 4 bytes each.
// Differs: the leader is worker (step mod N). What is large is the leader's p = e + g. With `filter` = beta, the
//          low-pass filter, e' = (1 - beta) e + beta (p - sent): of e, 1 - beta stays where values are sent. The
//          paper's beta, and whether it leaves first layers dense, is not established: 1, plain error feedback, is the
//          default, and all layers are alike. A late leader is waited for as anybody is. Ties go to the lowest place.
// Checks:  sum of what is sent = sum of gradients + (first residual - last) / beta.
#pragma once

#include <vector>

#include "workers/compression/compressor.hpp"

namespace syncopate {

class ScaleCom : public Compressor {
 public:
  ScaleCom(const CompressionOptions& options, std::vector<Part> parts, std::uint64_t seed, int workers)
      : Compressor(options, seed), parts_(std::move(parts)), workers_(workers) {}

  std::vector<Exchange> exchanges(Step step) const override;
  // With a filter p has a vector of its own, behind e.
  std::size_t vectors() const override { return is_filtered() ? 2 : 1; }
  Rank root(Step step) const override { return Rank{static_cast<int>(step.value() % workers_)}; }

  void take_in(std::span<const float> gradient, std::size_t at, float of_memory,
               std::span<float> memory) const override;
  bool takes_in_by_adding() const override { return !is_filtered(); }
  void fold(std::span<const float> gradient, std::size_t at, std::span<float> memory) const override;
  void encode(Rank worker, Step step, const float* common, std::span<float> memory, float* packet) const override;
  void encode_second(Step step, const float* places, std::span<float> memory, float* packet) const override;
  void decode(const Received& received, std::span<float> sum) const override;

 private:
  bool is_filtered() const { return options_.filter < 1; }
  std::size_t kept(Step step) const;

  std::vector<Part> parts_;
  int workers_;
};

}  // namespace syncopate
