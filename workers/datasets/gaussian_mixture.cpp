#include "workers/datasets/gaussian_mixture.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "workers/process/interrupt.hpp"
#include "workers/random/random.hpp"
#include "workers/random/standard_normal.hpp"

namespace syncopate {
namespace {

// Streams of Purpose::synthetic_data; the stream's step is the class or the sample.
constexpr std::uint8_t centre_stream = 0;
constexpr std::uint8_t train_stream = 1;
constexpr std::uint8_t test_stream = 2;

// (classes, dimension), each row of length `separation`.
std::vector<double> draw_centres(const GaussianMixtureOptions& options, std::uint64_t seed) {
  const auto dimension = static_cast<std::size_t>(options.dimension);
  std::vector<double> centres(static_cast<std::size_t>(options.classes) * dimension);
  for (std::int64_t c = 0; c < options.classes; ++c) {
    throw_if_interrupted();
    const std::span<double> centre(centres.data() + static_cast<std::size_t>(c) * dimension, dimension);
    fill_standard_normal({.seed = seed, .purpose = Purpose::synthetic_data, .stream = centre_stream, .step = c}, 0,
                         centre);
    double square = 0;
    for (const double x : centre) square += x * x;
    for (double& x : centre) x *= options.separation / std::sqrt(square);
  }
  return centres;
}

std::vector<float> draw_samples(const GaussianMixtureOptions& options, std::uint64_t seed,
                                std::span<const double> centres, std::uint8_t stream, std::int64_t samples) {
  const auto dimension = static_cast<std::size_t>(options.dimension);
  std::vector<float> inputs(static_cast<std::size_t>(samples) * dimension);
  std::vector<double> noise(dimension);
  for (std::int64_t i = 0; i < samples; ++i) {
    throw_if_interrupted();
    fill_standard_normal({.seed = seed, .purpose = Purpose::synthetic_data, .stream = stream, .step = i}, 0, noise);
    const double* centre = centres.data() + static_cast<std::size_t>(i % options.classes) * dimension;
    float* row = inputs.data() + static_cast<std::size_t>(i) * dimension;
    for (std::size_t d = 0; d < dimension; ++d) row[d] = static_cast<float>(centre[d] + noise[d]);
  }
  return inputs;
}

class GaussianMixture : public Dataset {
 public:
  GaussianMixture(const GaussianMixtureOptions& options, std::uint64_t seed) : size_(gaussian_mixture_size(options)) {
    const auto centres = draw_centres(options, seed);
    inputs_ = {draw_samples(options, seed, centres, train_stream, options.train),
               draw_samples(options, seed, centres, test_stream, options.test)};
  }

  const DatasetSize& size() const override { return size_; }

  void gather(Split split, std::span<const std::uint32_t> samples, float* inputs, std::int64_t* labels) const override {
    const auto& source = inputs_[split == Split::train ? 0 : 1];
    const auto dimension = static_cast<std::size_t>(size_.shape.features());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      std::copy_n(source.data() + samples[i] * dimension, dimension, inputs + i * dimension);
      labels[i] = samples[i] % size_.classes;
    }
  }

 private:
  DatasetSize size_;
  std::array<std::vector<float>, 2> inputs_;
};

}  // namespace

DatasetSize gaussian_mixture_size(const GaussianMixtureOptions& options) {
  return {.train = options.train,
          .test = options.test,
          .shape = {.channels = 1, .height = 1, .width = options.dimension},
          .classes = options.classes};
}

std::shared_ptr<const Dataset> make_gaussian_mixture(const GaussianMixtureOptions& options, std::uint64_t seed) {
  return std::make_shared<GaussianMixture>(options, seed);
}

}  // namespace syncopate
