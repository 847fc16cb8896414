// 1-bit SGD: a bit per value, and per column of a matrix the means of the values below 0 and of the others, which stand
// for them. What that misses goes into the next gradient.
// Source:  Seide, Fu, Droppo, Li, Yu 2014, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
//          Distributed Training of Speech DNNs"; CNTK's code where that leaves anything open.
// Shapes:  M (n, m), a tensor's first dimension by the others: m columns; of other tensors, all values are one column.
// Cost:    all-gather of a bit per value and 8 bytes per column; or in two phases, as theirs (two_phase.hpp).
// Differs: all-gathered unless the file says otherwise; `scope` may make one column of each tensor or of the whole
//          model. A group without values has mean 0. `threshold` = "mean" is another form of CNTK's code: a value's bit
//          tells on which side of the column's mean it lies, and stands for the mean less or plus one deviation. Which
//          deviation that is there is not established; here it is the mean distance, of which least is missed. The
//          threshold of 0 is the default, with which every column keeps its mean.
// Checks:  a column with one value on each side of 0, or with two different values as often, is exact.
#pragma once

#include <vector>

#include "workers/compression/compressor.hpp"

namespace syncopate {

class OneBit : public Compressor {
 public:
  OneBit(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed);

  void encode(Rank worker, Step step, const float* common, std::span<float> p, float* packet) const override;
  void decode(const Received& received, std::span<float> sum) const override;

 private:
  // Values i, i + columns, i + 2 columns, ... are a column; the last row may be shorter.
  struct Table {
    std::size_t offset;
    std::size_t size;
    std::size_t columns;
    std::size_t words() const;
  };
  std::vector<Table> tables_;
};

}  // namespace syncopate
