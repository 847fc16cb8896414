// A small set of random images, for tests of models.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "workers/base/random.hpp"
#include "workers/data/dataset.hpp"

namespace syncopate {

class RandomImages : public Dataset {
 public:
  RandomImages(const SampleShape& shape, std::int64_t classes, std::int64_t train, std::int64_t test)
      : size_{.train = train, .test = test, .shape = shape, .classes = classes} {}

  const DatasetSize& size() const override { return size_; }

  void gather(Split split, std::span<const std::uint32_t> samples, float* inputs, std::int64_t* labels) const override {
    const auto features = static_cast<std::size_t>(size_.shape.features());
    std::vector<double> pixels(features);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const RandomStream stream{.seed = split == Split::train ? 1u : 2u, .step = samples[i]};
      fill_standard_normal(stream, 0, pixels);
      std::copy(pixels.begin(), pixels.end(), inputs + i * features);
      labels[i] = (samples[i] * 7) % size_.classes;
    }
  }

 private:
  DatasetSize size_;
};

}  // namespace syncopate
