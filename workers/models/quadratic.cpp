#include "workers/models/quadratic.hpp"

#include <cmath>
#include <memory>
#include <utility>

#include "workers/base/process.hpp"
#include "workers/base/random.hpp"

namespace syncopate {

namespace {

// Streams of Purpose::initial_parameters: networks use 0.
constexpr std::uint8_t start_stream = 0;
constexpr std::uint8_t optimum_stream = 1;

std::vector<double> draw_parameters(std::uint64_t seed, std::uint8_t stream, std::size_t dimension) {
  std::vector<double> values(dimension);
  fill_standard_normal({.seed = seed, .purpose = Purpose::initial_parameters, .stream = stream}, 0, values);
  return values;
}

}  // namespace

Quadratic::Quadratic(const QuadraticOptions& options, std::uint64_t seed)
    : options_(options),
      seed_(seed),
      curvatures_(static_cast<std::size_t>(options.dimension), 1.0),
      optimum_(draw_parameters(seed, optimum_stream, static_cast<std::size_t>(options.dimension))) {
  const auto last = static_cast<double>(curvatures_.size() - 1);
  for (std::size_t i = 0; i + 1 < curvatures_.size(); ++i)
    curvatures_[i] = std::pow(options.condition, static_cast<double>(i) / last - 1);
}

std::vector<float> Quadratic::initial_parameters(std::uint64_t seed) const {
  const auto start = draw_parameters(seed, start_stream, optimum_.size());
  return {start.begin(), start.end()};
}

PartialGradient Quadratic::gradient(const float* parameters, const float*,
                                    std::span<const MicroBatch> micro_batches) const {
  const std::size_t dimension = optimum_.size();
  const auto count = static_cast<double>(micro_batches.size());
  std::vector<double> sum(dimension);
  for (std::size_t i = 0; i < dimension; ++i) sum[i] = count * curvatures_[i] * (parameters[i] - optimum_[i]);

  PartialGradient result;
  result.loss_sum = count * loss(parameters);
  std::vector<double> z(options_.noise > 0 ? dimension : 0);
  for (const MicroBatch& m : micro_batches) {
    throw_if_interrupted();
    // A stream holds 2^32 numbers: micro-batches of one step follow each other in it. Both factors are
    // bounded where they are configured.
    const auto first = static_cast<std::uint32_t>(static_cast<std::size_t>(m.index) * dimension);
    fill_standard_normal(
        {.seed = seed_, .purpose = Purpose::gradient_noise, .worker = m.worker, .step = options_.first_step + m.step},
        first, z);
    for (std::size_t i = 0; i < z.size(); ++i) {
      sum[i] += options_.noise * z[i];
      result.loss_sum += options_.noise * z[i] * (parameters[i] - optimum_[i]);
    }
  }

  auto values = std::make_shared<const std::vector<float>>(sum.begin(), sum.end());
  const float* data = values->data();
  result.segments.push_back({.offset = 0, .size = dimension, .data = data, .owner = std::move(values)});
  return result;
}

EvaluationSums Quadratic::evaluate(const float* parameters, const float*, Split, std::int64_t begin,
                                   std::int64_t end) const {
  return {.loss = static_cast<double>(end - begin) * loss(parameters), .correct = 0, .samples = end - begin};
}

std::vector<double> Quadratic::derivative(const float* parameters, const float*, Split, std::int64_t, std::int64_t,
                                          std::span<const double> direction) const {
  std::vector<double> result(optimum_.size());
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = curvatures_[i] * (direction.empty() ? parameters[i] - optimum_[i] : direction[i]);
  return result;
}

double Quadratic::loss(const float* parameters) const {
  double sum = 0;
  for (std::size_t i = 0; i < optimum_.size(); ++i) {
    const double distance = parameters[i] - optimum_[i];
    sum += 0.5 * curvatures_[i] * distance * distance;
  }
  return sum;
}

Model read_quadratic(Settings& table) {
  const QuadraticOptions usual;
  // The noise of a step's micro-batches shares a stream of 2^32 numbers.
  const QuadraticOptions options = {
      .dimension = table.integer({"dimension", "Number of parameters."}, 1, 1 << 16, usual.dimension),
      .condition = table.number({"condition", "Ratio of the largest curvature to the smallest."}, Range::at_least(1),
                                usual.condition),
      .noise = table.number({"noise", "Standard deviation of a micro-batch's gradient, per parameter."},
                            Range::at_least(0), usual.noise)};
  return {.chunk_samples = Quadratic::chunk,
          .objective =
              [options](std::uint64_t seed, Step first_step) {
                QuadraticOptions continued = options;
                continued.first_step = first_step;
                return std::make_shared<Quadratic>(continued, seed);
              },
          .parameters = options.dimension};
}

}  // namespace syncopate
