// What a model is measured by beside its losses, as one executor task: one model is measured while others train.
#include <algorithm>
#include <cassert>
#include <cmath>
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

}  // namespace

void Training::measure(const ModelStatePtr& state, const MeasureOptions& options,
                       std::function<void(const ModelMeasures&)> done) {
  assert(objective_);
  const std::shared_ptr<Task> inputs[] = {producer(state->parameters), producer(state->buffers)};
  executor_.submit([objective = objective_, state = held_by_task(state), options,
                    done = std::move(done)] { done(measures_of(*objective, *state, options)); },
                   inputs);
}

void Training::measure_norm(const Gradient& gradient, std::function<void(double)> done) {
  assert(objective_);
  double scale = 1;
  const auto sum = fix_sum(gradient, *objective_, scale);
  submit_chunks(sum, objective_, executor_);
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
