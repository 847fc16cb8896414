// Gradients of embeddings as the rows that a step's tokens have touched, each with its place; all other parameters are
// summed as they are.
// Source:  as indexed slices of Horovod, which all-gathers them unless they are told to be dense.
// Cost:    all-reduce of 4 bytes of each parameter outside the tables; all-gather of 4 (c + 1) bytes for each row of c
//          values with anything but zeros in it, and of 4 bytes more. N workers: fewer bytes than a dense sum where
//          less than about 2 / N of the rows are touched.
// Differs: there indices and values travel apart, rows of one index that a worker has several times are sent several
//          times, and indices take 8 bytes; here a worker's micro-batches are added up first. Only how gradients travel
//          is another: the step is that along the dense sum, in which moments and decay of untouched rows go on, as
//          they do not in an optimizer for sparse gradients. A table whose rows are all touched, such as one that is
//          tied to an output layer, is sent whole, with places.
// Checks:  equals the dense sum up to the order of additions, for any optimizer; bytes by the rows of each worker.
#pragma once

#include <vector>

#include "workers/compression/compressor.hpp"

namespace syncopate {

class SparseRows : public Compressor {
 public:
  // Tables are the parts with rows.
  SparseRows(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed);

  void encode(Rank worker, Step step, const float* common, std::span<float> p, float* packet) const override;
  bool has_own_sizes() const override { return true; }
  std::size_t second_words(std::span<const float> p) const override;
  void encode_second(Step step, const float* between, std::span<float> p, float* packet) const override;
  void decode(const Received& received, std::span<float> sum) const override;

 private:
  // Calls `use` with the row's first place and its values, for each with anything but zeros.
  template <typename Use>
  void for_touched_rows(std::span<const float> p, const Use& use) const;
  std::size_t columns_at(std::size_t place) const;

  std::vector<Part> tables_;
  std::vector<Part> dense_;
};

}  // namespace syncopate
