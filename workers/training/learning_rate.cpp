#include "workers/training/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <stdexcept>
#include <string>
#include <utility>

namespace syncopate {
namespace {

void require(bool holds, const std::string& message) {
  if (!holds) throw std::invalid_argument("learning rate: " + message);
}

bool at_least_zero(double value) { return std::isfinite(value) && value >= 0; }

}  // namespace

LearningRate::LearningRate(Options options) : options_(std::move(options)) {
  const Options& o = options_;
  require(at_least_zero(o.peak), "peak must be a finite number of at least 0, found " + std::to_string(o.peak));
  require(at_least_zero(o.final), "final must be a finite number of at least 0, found " + std::to_string(o.final));
  require(o.warmup_steps >= 0, "warmup_steps must be at least 0, found " + std::to_string(o.warmup_steps.value()));
  require(o.total_steps >= 0, "total_steps must be at least 0, found " + std::to_string(o.total_steps.value()));
  if (o.shape == Shape::linear || o.shape == Shape::cosine) {
    require(o.total_steps > o.warmup_steps, "total_steps (" + std::to_string(o.total_steps.value()) +
                                                ") must be above warmup_steps (" +
                                                std::to_string(o.warmup_steps.value()) + ")");
  }
  if (o.shape == Shape::step) {
    require(std::isfinite(o.decay_factor) && o.decay_factor > 0,
            "decay_factor must be a finite number above 0, found " + std::to_string(o.decay_factor));
    require(o.decay_steps.empty() || o.decay_steps.front() >= 0, "decay_steps must be at least 0");
    require(std::ranges::adjacent_find(o.decay_steps, std::greater_equal<>{}) == o.decay_steps.end(),
            "decay_steps must ascend");
  }
}

// The order of the operations is that of the formulas in the header: a period (coefficient / eta)^p is
// rounded down, so the last bit of eta can decide it.
double LearningRate::at(Step steps_done) const {
  const Options& o = options_;
  const auto t = static_cast<double>(steps_done.value());
  const auto W = static_cast<double>(o.warmup_steps.value());
  if (steps_done < o.warmup_steps) return o.final + t * (o.peak - o.final) / W;

  const Step decaying = o.total_steps - o.warmup_steps;
  const auto N = static_cast<double>(decaying.value());
  const auto u = static_cast<double>(std::min(steps_done - o.warmup_steps, decaying).value());
  switch (o.shape) {
    case Shape::constant:
      return o.peak;
    case Shape::step: {
      const auto reached = std::ranges::upper_bound(o.decay_steps, steps_done) - o.decay_steps.begin();
      return o.peak * std::pow(o.decay_factor, static_cast<double>(reached));
    }
    case Shape::linear:
      return o.final + (o.peak - o.final) * (N - u) / N;
    case Shape::cosine:
      return o.final + 0.5 * (o.peak - o.final) * (1 + std::cos(std::numbers::pi * u / N));
  }
  return o.peak;
}

}  // namespace syncopate
