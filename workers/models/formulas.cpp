#include "workers/models/formulas.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "workers/base/process.hpp"
#include "workers/base/random.hpp"

namespace syncopate {

namespace {

// Streams of Purpose::initial_parameters. Networks use stream 0, too.
constexpr std::uint8_t start_stream = 0;
constexpr std::uint8_t optimum_stream = 1;

std::vector<double> draw_parameters(std::uint64_t seed, std::uint8_t stream, std::size_t dimension) {
  std::vector<double> values(dimension);
  fill_standard_normal({.seed = seed, .purpose = Purpose::initial_parameters, .stream = stream}, 0, values);
  return values;
}

RandomStream noise_of(const MicroBatch& micro_batch, std::uint64_t seed, Step first_step) {
  return {.seed = seed,
          .purpose = Purpose::gradient_noise,
          .worker = micro_batch.worker,
          .step = first_step + micro_batch.step};
}

// The index of a micro-batch's first number in its step's stream of 2^32 numbers. Settings limit both factors.
std::uint32_t first_number(const MicroBatch& micro_batch, std::size_t numbers) {
  return static_cast<std::uint32_t>(static_cast<std::size_t>(micro_batch.index) * numbers);
}

PartialGradient in_one_segment(const std::vector<double>& sum, double loss_sum) {
  auto values = std::make_shared<const std::vector<float>>(sum.begin(), sum.end());
  const float* data = values->data();
  PartialGradient result;
  result.loss_sum = loss_sum;
  result.segments.push_back({.offset = 0, .size = sum.size(), .data = data, .owner = std::move(values)});
  return result;
}

template <typename Objective, typename Options>
Model model_of(const Options& options, std::int64_t parameters) {
  return {.objective =
              [options](std::uint64_t seed, Step first_step) {
                Options continued = options;
                continued.first_step = first_step;
                return std::make_shared<Objective>(continued, seed);
              },
          .parameters = parameters};
}

}  // namespace

EvaluationSums Formula::evaluate(const float* parameters, const float*, Split split, std::int64_t begin,
                                 std::int64_t end) const {
  return {.loss = static_cast<double>(end - begin) * loss(parameters, split), .correct = 0, .samples = end - begin};
}

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

  double loss_sum = count * loss(parameters, Split::train);
  std::vector<double> z(options_.noise > 0 ? dimension : 0);
  for (const MicroBatch& m : micro_batches) {
    throw_if_interrupted();
    fill_standard_normal(noise_of(m, seed_, options_.first_step), first_number(m, dimension), z);
    for (std::size_t i = 0; i < z.size(); ++i) {
      sum[i] += options_.noise * z[i];
      loss_sum += options_.noise * z[i] * (parameters[i] - optimum_[i]);
    }
  }
  return in_one_segment(sum, loss_sum);
}

std::vector<double> Quadratic::derivative(const float* parameters, const float*, Split, std::int64_t, std::int64_t,
                                          std::span<const double> direction) const {
  std::vector<double> result(optimum_.size());
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = curvatures_[i] * (direction.empty() ? parameters[i] - optimum_[i] : direction[i]);
  return result;
}

double Quadratic::loss(const float* parameters, Split) const {
  double sum = 0;
  for (std::size_t i = 0; i < optimum_.size(); ++i) {
    const double distance = parameters[i] - optimum_[i];
    sum += 0.5 * curvatures_[i] * distance * distance;
  }
  return sum;
}

std::vector<float> Valley::initial_parameters(std::uint64_t) const {
  std::vector<float> start(parameters());
  std::fill_n(start.begin(), pairs(), static_cast<float>(options_.start));
  return start;
}

PartialGradient Valley::gradient(const float* parameters, const float*,
                                 std::span<const MicroBatch> micro_batches) const {
  const float *u = parameters, *v = parameters + pairs();
  const auto count = static_cast<double>(micro_batches.size());
  std::vector<double> sum(2 * pairs());
  for (std::size_t i = 0; i < pairs(); ++i) {
    const double product = static_cast<double>(u[i]) * v[i];
    sum[i] = count * product * v[i];
    sum[pairs() + i] = count * product * u[i];
  }
  double loss_sum = count * loss(parameters, Split::train);
  std::vector<double> z(options_.noise > 0 ? pairs() : 0);
  for (const MicroBatch& m : micro_batches) {
    throw_if_interrupted();
    fill_standard_normal(noise_of(m, seed_, options_.first_step), first_number(m, pairs()), z);
    for (std::size_t i = 0; i < z.size(); ++i) {
      sum[pairs() + i] += options_.noise * z[i];
      loss_sum += options_.noise * z[i] * v[i];
    }
  }
  return in_one_segment(sum, loss_sum);
}

std::vector<double> Valley::derivative(const float* parameters, const float*, Split, std::int64_t, std::int64_t,
                                       std::span<const double> direction) const {
  std::vector<double> result(2 * pairs());
  for (std::size_t i = 0; i < pairs(); ++i) {
    const double u = parameters[i], v = parameters[pairs() + i];
    if (direction.empty()) {
      result[i] = u * v * v;
      result[pairs() + i] = u * u * v;
    } else {
      const double du = direction[i], dv = direction[pairs() + i];
      result[i] = v * v * du + 2 * u * v * dv;
      result[pairs() + i] = 2 * u * v * du + u * u * dv;
    }
  }
  return result;
}

double Valley::loss(const float* parameters, Split) const {
  double sum = 0;
  for (std::size_t i = 0; i < pairs(); ++i) {
    const double product = static_cast<double>(parameters[i]) * parameters[pairs() + i];
    sum += 0.5 * product * product;
  }
  return sum;
}

DiagonalLinear::DiagonalLinear(const DiagonalLinearOptions& options, std::uint64_t seed)
    : options_(options),
      seed_(seed),
      inputs_(static_cast<std::size_t>(options.inputs * options.dimension)),
      truth_(static_cast<std::size_t>(options.dimension)) {
  fill_standard_normal({.seed = options.problem_seed.value_or(seed), .purpose = Purpose::synthetic_data}, 0, inputs_);
  for (std::size_t i = 0; i < static_cast<std::size_t>(options.active); ++i) truth_[i] = i % 2 == 0 ? 1 : -1;
}

std::vector<float> DiagonalLinear::initial_parameters(std::uint64_t) const {
  return std::vector<float>(parameters(), static_cast<float>(options_.start));
}

PartialGradient DiagonalLinear::gradient(const float* parameters, const float*,
                                         std::span<const MicroBatch> micro_batches) const {
  const float *u = parameters, *v = parameters + dimension();
  std::vector<double> sum(2 * dimension());
  double loss_sum = 0;
  for (const MicroBatch& m : micro_batches) {
    throw_if_interrupted();
    std::array<double, 2> drawn;  // uniform: the first selects the input, the second the sign of its label noise
    noise_of(m, seed_, options_.first_step).fill_uniform(first_number(m, drawn.size()), drawn);
    const auto x = input(static_cast<std::size_t>(drawn[0] * static_cast<double>(options_.inputs)));
    double error = drawn[1] < 0.5 ? options_.label_noise : -options_.label_noise;
    for (std::size_t i = 0; i < dimension(); ++i)
      error += x[i] * (static_cast<double>(u[i]) * u[i] - static_cast<double>(v[i]) * v[i] - truth_[i]);
    for (std::size_t i = 0; i < dimension(); ++i) {
      sum[i] += 2 * error * x[i] * u[i];
      sum[dimension() + i] -= 2 * error * x[i] * v[i];
    }
    loss_sum += 0.5 * error * error;
  }
  return in_one_segment(sum, loss_sum);
}

// The losses of both splits are functions of d = u^2 - v^2 - truth; the chain rule gives their derivatives in u and v.
std::vector<double> DiagonalLinear::derivative(const float* parameters, const float*, Split split, std::int64_t,
                                               std::int64_t, std::span<const double> direction) const {
  const std::size_t n = dimension();
  // The gradient in d of the split's loss, which is a linear function of d.
  const auto gradient_at = [&](std::vector<double> d) {
    if (split == Split::test) {
      for (double& value : d) value *= 2;
      return d;
    }
    std::vector<double> result(n);
    const std::vector<double> errors_of_d = errors(d);
    for (std::size_t j = 0; j < errors_of_d.size(); ++j)
      for (std::size_t i = 0; i < n; ++i)
        result[i] += errors_of_d[j] * input(j)[i] / static_cast<double>(options_.inputs);
    return result;
  };
  const std::vector<double> gradient = gradient_at(difference(parameters));

  std::vector<double> result(2 * n);
  if (direction.empty()) {
    for (std::size_t i = 0; i < n; ++i) {
      result[i] = 2 * parameters[i] * gradient[i];
      result[n + i] = -2 * parameters[n + i] * gradient[i];
    }
    return result;
  }
  std::vector<double> change(n);  // change of d along the direction
  for (std::size_t i = 0; i < n; ++i)
    change[i] = 2 * (parameters[i] * direction[i] - parameters[n + i] * direction[n + i]);
  const std::vector<double> gradient_change = gradient_at(std::move(change));
  for (std::size_t i = 0; i < n; ++i) {
    result[i] = 2 * (direction[i] * gradient[i] + parameters[i] * gradient_change[i]);
    result[n + i] = -2 * (direction[n + i] * gradient[i] + parameters[n + i] * gradient_change[i]);
  }
  return result;
}

double DiagonalLinear::loss(const float* parameters, Split split) const {
  const std::vector<double> d = difference(parameters);
  double sum = 0;
  if (split == Split::test) {
    for (const double value : d) sum += value * value;
    return sum;
  }
  for (const double error : errors(d)) sum += 0.5 * error * error;
  return sum / static_cast<double>(options_.inputs);
}

std::vector<double> DiagonalLinear::difference(const float* parameters) const {
  std::vector<double> result(dimension());
  for (std::size_t i = 0; i < result.size(); ++i) {
    const double u = parameters[i], v = parameters[dimension() + i];
    result[i] = u * u - v * v - truth_[i];
  }
  return result;
}

std::vector<double> DiagonalLinear::errors(const std::vector<double>& difference) const {
  std::vector<double> result(static_cast<std::size_t>(options_.inputs));
  for (std::size_t j = 0; j < result.size(); ++j)
    for (std::size_t i = 0; i < dimension(); ++i) result[j] += input(j)[i] * difference[i];
  return result;
}

// All micro-batches of a step draw noise from one stream of 2^32 numbers, which limits these sizes.
constexpr std::int64_t largest_formula = 1 << 16;

Model read_quadratic(Settings& table) {
  const QuadraticOptions usual;
  const QuadraticOptions options = {
      .dimension = table.integer({"dimension", "Number of parameters."}, 1, largest_formula, usual.dimension),
      .condition = table.number({"condition", "Ratio of the largest curvature to the smallest."}, Range::at_least(1),
                                usual.condition),
      .noise = table.number({"noise", "Standard deviation of a micro-batch's gradient, per parameter."},
                            Range::at_least(0), usual.noise)};
  return model_of<Quadratic>(options, options.dimension);
}

Model read_valley(Settings& table) {
  const ValleyOptions usual;
  const ValleyOptions options = {
      .pairs = table.integer({"pairs", "Number of independent pairs (u, v)."}, 1, largest_formula, usual.pairs),
      .start = table.number({"start", "Value of u in every pair at the start; the sharpness is its square."},
                            Range::positive(), usual.start),
      .noise = table.number({"noise", "Standard deviation of a micro-batch's gradient in each v."}, Range::at_least(0),
                            usual.noise)};
  return model_of<Valley>(options, 2 * options.pairs);
}

Model read_diagonal_linear(Settings& table) {
  const DiagonalLinearOptions usual;
  DiagonalLinearOptions options = {
      .dimension =
          table.integer({"dimension", "Number of coordinates of an input."}, 1, largest_formula, usual.dimension),
      .inputs = table.integer({"inputs", "Number of training inputs."}, 1, largest_formula, usual.inputs),
      .active = table.integer({"active", "Number of coordinates on which the true output depends."}, 1, largest_formula,
                              usual.active),
      .label_noise = table.number({"label_noise", "Every target is the true output plus or minus this number."},
                                  Range::at_least(0), usual.label_noise),
      .start = table.number({"start", "Every u and v at the start."}, Range::positive(), usual.start)};
  if (const auto seed = table.optional_integer(
          {"problem_seed", "Fixes the inputs, for all seeds of the experiment.", "", "every seed draws its own inputs"},
          0, std::numeric_limits<std::int64_t>::max()))
    options.problem_seed = static_cast<std::uint64_t>(*seed);
  if (options.active > options.dimension) table.fault("active", "must be at most `dimension`");
  return model_of<DiagonalLinear>(options, 2 * options.dimension);
}

}  // namespace syncopate
