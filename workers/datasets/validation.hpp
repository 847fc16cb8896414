// A part of the training set that nothing is trained on, to choose by: the test set is looked at once, at the end. And
// a subset of the rest that alone is trained on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "workers/datasets/dataset.hpp"

namespace syncopate {

struct ValidationOptions {
  std::int64_t samples = 0;  // less than the training set has
  std::optional<std::int64_t>
      subset{};            // of the others, so many are trained on, all those of a smaller subset; none: all
  std::uint64_t seed = 0;  // which samples these are; not the run's, so that all runs of an experiment have the same
};

DatasetSize with_validation(DatasetSize size, const ValidationOptions& options);

// `samples` different training samples are Split::validation; the others, or the subset of them, numbered anew in their
// order, are Split::train. What the data set normalises by stays that of all of them.
std::shared_ptr<const Dataset> with_validation(std::shared_ptr<const Dataset> inner, const ValidationOptions& options);

}  // namespace syncopate
