// Asynchronous SGD on three workers (three_workers.hpp) in double precision: nine updates, each along one gradient that
// was computed at an earlier model.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include "tests/workers/pull_objective.hpp"

namespace syncopate {

using Vector = std::array<double, 4>;

// One update: the worker, its step, the version of the gradient's model, and how many gradients the worker had sent in
// the round (throttle.hpp). The gradients arrive at 1.5, 1.6, 3.0 | 3.1, 3.2, 4.5 | 4.8, 6.0, 6.2 s.
struct AsynchronousUpdate {
  int worker, own_step, version, repeats;
};
inline constexpr AsynchronousUpdate asynchronous_updates[] = {{0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 1, 1},
                                                              {2, 0, 0, 0}, {1, 1, 2, 0}, {0, 2, 3, 0},
                                                              {1, 2, 5, 1}, {0, 3, 6, 1}, {2, 1, 4, 0}};

// The gradient, clipped to a global norm of at most `most`.
inline Vector clipped(Vector gradient, double most) {
  double squares = 0;
  for (const double value : gradient) squares += value * value;
  for (double& value : gradient) value *= std::min(1.0, most / std::sqrt(squares));
  return gradient;
}

// Optimizers have a function step(parameters, gradient, weight). The weight multiplies the update's learning rate.
struct PlainSgd {
  double rate;
  double momentum = 0;
  double decay = 0;  // coupled weight decay: added to the gradient
  Vector velocity{};

  void step(Vector& parameters, const Vector& gradient, double weight) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      velocity[i] = momentum * velocity[i] + gradient[i] + decay * parameters[i];
      parameters[i] -= rate * weight * velocity[i];
    }
  }
};

struct PlainAdamW {
  double rate;
  double decay;
  double epsilon;
  double beta1 = 0.9, beta2 = 0.999;
  int steps = 0;
  Vector first{}, second{};

  void step(Vector& parameters, const Vector& gradient, double weight) {
    ++steps;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      first[i] = beta1 * first[i] + (1 - beta1) * gradient[i];
      second[i] = beta2 * second[i] + (1 - beta2) * gradient[i] * gradient[i];
      const double m = first[i] / (1 - std::pow(beta1, steps)), v = second[i] / (1 - std::pow(beta2, steps));
      parameters[i] *= 1 - rate * weight * decay;
      parameters[i] -= rate * weight * m / (std::sqrt(v) + epsilon);
    }
  }
};

// The parameters after the nine updates. weight_of(update, staleness) returns the weight of an update.
template <typename Optimizer, typename WeightOf>
Vector after_updates(Optimizer optimizer, const WeightOf& weight_of, double clip_norm = HUGE_VAL) {
  std::vector<Vector> versions = {{1, 1, 1, 1}};
  for (const AsynchronousUpdate& update : asynchronous_updates) {
    const double tau = static_cast<double>(versions.size()) - 1 - update.version;
    Vector gradient = versions[static_cast<std::size_t>(update.version)];
    for (std::size_t i = 0; i < gradient.size(); ++i)
      gradient[i] -= PullObjective::target({Rank{update.worker}, update.own_step, 0}, i);
    Vector next = versions.back();
    optimizer.step(next, clipped(gradient, clip_norm), weight_of(update, tau));
    versions.push_back(next);
  }
  return versions.back();
}

}  // namespace syncopate
