// What a model is measured by beside its losses, as one executor task: one model is measured while others train.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <optional>
#include <utility>

#include "workers/training/course_log.hpp"
#include "workers/training/curvature.hpp"
#include "workers/training/gradient_noise.hpp"
#include "workers/training/gradient_sum.hpp"
#include "workers/training/training.hpp"

namespace syncopate {
namespace {

double length_of(std::span<const double> vector) {
  double squares = 0;
  for (const double element : vector) squares += element * element;
  return std::sqrt(squares);
}

ModelMeasures measures_of(const Objective& objective, const ModelState& state, const MeasureOptions& options) {
  const auto samples = std::min(options.samples, objective.evaluation_samples(Split::train));
  const float* const parameters = state.parameters->value.data();
  const float* const buffers = state.buffers ? state.buffers->value.data() : nullptr;
  const auto derivative = [&](std::span<const double> direction) {
    return objective.derivative(parameters, buffers, Split::train, 0, samples, direction);
  };
  const std::size_t size = objective.parameters();
  ModelMeasures measures;
  if (options.gradient_norm) measures.gradient_norm = length_of(derivative({}));
  if (options.noise_scale && samples > 1) {
    const GradientNoise noise = gradient_noise(size, samples, [&](std::int64_t sample) {
      return objective.derivative(parameters, buffers, Split::train, sample, sample + 1, {});
    });
    measures.gradient_variance = noise.variance;
    measures.noise_scale = noise.scale;
  }
  const CurvatureOptions curvature{
      .most_products = options.most_products, .tolerance = options.tolerance, .seed = options.seed};
  if (options.largest_eigenvalue) measures.largest_eigenvalue = largest_eigenvalue(size, derivative, curvature);
  if (options.hessian_trace) measures.hessian_trace = hessian_trace(size, derivative, curvature);
  if (options.largest_eigenvalue || options.hessian_trace) {
    const std::vector<double> values(parameters, parameters + size);
    measures.parameter_norm = length_of(values);
  }
  return measures;
}

// As numbers, those that there are none of as NaN behind a 0.
std::vector<std::optional<double>*> all_of(ModelMeasures& measures) {
  return {&measures.gradient_norm,      &measures.gradient_variance, &measures.noise_scale,
          &measures.largest_eigenvalue, &measures.hessian_trace,     &measures.parameter_norm};
}

std::vector<double> numbers_of(ModelMeasures measures) {
  std::vector<double> numbers;
  for (const std::optional<double>* const measure : all_of(measures))
    numbers.insert(numbers.end(), {measure->has_value() ? 1.0 : 0.0, measure->value_or(0)});
  return numbers;
}

ModelMeasures measures_of(std::span<const double> numbers) {
  ModelMeasures measures;
  for (std::optional<double>* const measure : all_of(measures)) {
    if (numbers[0] != 0) *measure = numbers[1];
    numbers = numbers.subspan(2);
  }
  return measures;
}

}  // namespace

// By one of the processes that have the model, where several divide the work.
void Training::measure(const ModelStatePtr& state, const MeasureOptions& options,
                       std::function<void(const ModelMeasures&)> done) {
  assert(objective_);
  const CellPtr read[] = {state->parameters, state->buffers};
  ProcessSet places = state->parameters->at;
  if (divided_) places = ProcessSet::only(places.lowest());
  const auto inputs = brought(read, places);
  const auto numbers = [objective = objective_, state = held_by_task(state), options] {
    return measures_of(*objective, *state, options);
  };
  if (!divided_) {
    executor_.submit([numbers, done = std::move(done)] { done(numbers()); }, inputs);
    return;
  }
  divided_->exchange_numbers(
      places, inputs, [numbers] { return numbers_of(numbers()); },
      [done = std::move(done)](const std::vector<DividedWork::Numbers>& all) { done(measures_of(all.front())); });
}

void Training::measure_norm(const Gradient& gradient, std::function<void(double)> done) {
  assert(objective_);
  double scale = 1;
  const auto sum = readable(fixed(gradient, scale), ProcessSet::everywhere());
  executor_.submit(
      [sum, scale, size = objective_->parameters(), done = std::move(done)] {
        std::vector<float> values(size);
        write_block(*sum, scale, 0, values);
        double squares = 0;
        for (const float value : values) squares += static_cast<double>(value) * value;
        done(std::sqrt(squares));
      },
      sum->tasks);
}

}  // namespace syncopate
