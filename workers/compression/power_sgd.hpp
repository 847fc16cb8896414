// PowerSGD: each matrix M as two factors, P of all workers' M Q, made orthogonal, and Q of all workers' M^T P; what all
// step along is P Q^T, the mean gradient's projection.
// Source:  Vogels, Karimireddy, Jaggi 2019, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
//          Optimization"; where the residual has two versions, their package's and their paper's code.
// Shapes:  M (n, m): a tensor's first dimension by the others; P (n, r); Q (m, r).
// Cost:    two all-reduces, one after the other, of 4 r n and 4 r m bytes per matrix. Tensors that are no matrices, and
//          those that the factors make smaller by `least_rate` or less, are in the first as they are.
// Differs: both factors at every step, as the paper's code; the package renews one, in turn (power_sgd_in_turn.hpp). No
//          steps without compression at first (the package has 100, PyTorch's hook 10 or 1000). A tensor that
//          is sent as it is leaves no residual (PyTorch's hook: what it lacks of the mean). `removed = "own"`, the
//          package's, is the default: with "mean", the paper's code's, what a worker's gradients differ from their mean
//          by stays in its residual for ever, and cancels over workers alone. The factor that a step begins with is not
//          made orthogonal before its use: it spans the same space. A column of it that is zero is drawn anew.
#pragma once

#include <vector>

#include "workers/compression/compressor.hpp"
#include "workers/compression/low_rank.hpp"

namespace syncopate {

class PowerSgd : public Compressor {
 public:
  PowerSgd(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed);

  void encode(Rank worker, Step step, const float* common, std::span<float> p, float* packet) const override;
  void prepare(float* sum) const override;
  bool follows_common() const override { return options_.warm_start; }
  void encode_second(Step step, const float* between, std::span<float> p, float* packet) const override;
  void decode(const Received& received, std::span<float> sum) const override;
  bool corrects_residual() const override { return options_.removed == CompressionOptions::Removed::shared; }
  void correct(const Received& received, std::span<float> p) const override;

 protected:
  struct Factored {
    LowRank shape;
    std::size_t offset;  // in the gradient
    std::size_t left;    // in the first packet
    std::size_t right;   // in the second
  };
  struct Whole {
    Part part;
    std::size_t at;  // in the first packet
  };

  // Columns that are drawn for a step, the same for all workers; `first`: by which numbers are drawn.
  void draw(Step step, std::size_t first, std::span<float> column) const;

  std::vector<Factored> factored_;
  std::vector<Whole> whole_;
  std::size_t right_words_ = 0;

 private:
  void begin_right(Step step, const float* last, std::span<float> right) const;
};

}  // namespace syncopate
