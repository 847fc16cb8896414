// Labelled samples in memory, with inputs normalised on the way to the model.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>

#include "workers/training/objective.hpp"

namespace syncopate {

// Data that cannot be used: names the file or the sizes, what was found, and what would be right.
struct DataFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Shape of one input. A vector of d features is one channel of one row.
struct SampleShape {
  std::int64_t channels = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t features() const { return channels * height * width; }
  bool operator==(const SampleShape&) const = default;
};

// What is known of a data set before its contents are read.
struct DatasetSize {
  std::int64_t train = 0;
  std::int64_t test = 0;
  SampleShape shape;
  std::int64_t classes = 0;
  std::int64_t samples(Split split) const { return split == Split::train ? train : test; }
};

// Immutable once made, so any number of threads may gather from it.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const DatasetSize& size() const = 0;

  // Writes the named samples of a split: inputs (n, features) row by row, each feature of mean 0 and
  // deviation 1 over the training set where the data set normalises, and labels (n,) in [0, classes).
  virtual void gather(Split split, std::span<const std::uint32_t> samples, float* inputs,
                      std::int64_t* labels) const = 0;
};

}  // namespace syncopate
