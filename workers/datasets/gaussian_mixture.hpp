// A generated data set with known statistics: each class is a Gaussian of unit deviation around a
// centre; the centres lie on a sphere in random directions.
#pragma once

#include <cstdint>
#include <memory>

#include "workers/datasets/dataset.hpp"

namespace syncopate {

struct GaussianMixtureOptions {
  std::int64_t classes = 10;
  std::int64_t dimension = 32;
  std::int64_t train = 20000;
  std::int64_t test = 4000;
  double separation = 3;  // radius of the sphere, in deviations within a class
};

DatasetSize gaussian_mixture_size(const GaussianMixtureOptions& options);

// Sample i has label i mod classes. Every number is a pure function of (seed, split, sample, feature):
// a larger data set begins with the smaller one's samples.
std::shared_ptr<const Dataset> make_gaussian_mixture(const GaussianMixtureOptions& options, std::uint64_t seed);

}  // namespace syncopate
