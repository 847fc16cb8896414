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

using Shape = LearningRate::Shape;

void require(bool holds, const std::string& message) {
  if (!holds) throw std::invalid_argument("learning rate: " + message);
}

void require_rate(double value, const char* name) {
  require(std::isfinite(value) && value >= 0,
          std::string(name) + " must be a finite number of at least 0, found " + std::to_string(value));
}

void require_steps(Step value, const char* name) {
  require(value >= 0, std::string(name) + " must be at least 0, found " + std::to_string(value.value()));
}

void require_above(double value, double low, const char* name) {
  require(std::isfinite(value) && value > low, std::string(name) + " must be a finite number above " +
                                                   std::to_string(low) + ", found " + std::to_string(value));
}

double as_double(Step steps) { return static_cast<double>(steps.value()); }

}  // namespace

LearningRate::LearningRate(Options options) : options_(std::move(options)) {
  const Options& o = options_;
  require_rate(o.peak, "peak");
  require_rate(o.final, "final");
  start_ = o.warmup_start.value_or(o.final);
  require_rate(start_, "warmup_start");
  require_steps(o.warmup_steps, "warmup_steps");
  require_steps(o.hold_steps, "hold_steps");
  require_steps(o.total_steps, "total_steps");
  require(o.warmup_share >= 0 && o.hold_share >= 0 && o.warmup_share + o.hold_share < 1,
          "warmup_share and hold_share must be at least 0, and below 1 together");
  warmup_ = as_double(o.warmup_steps) + o.warmup_share * as_double(o.total_steps);
  held_ = warmup_ + as_double(o.hold_steps) + o.hold_share * as_double(o.total_steps);
  const bool is_endless = o.shape == Shape::constant || o.shape == Shape::step || o.shape == Shape::exponential;
  require(is_endless || as_double(o.total_steps) > held_,
          "total_steps (" + std::to_string(o.total_steps.value()) + ") must be above warmup_steps (" +
              std::to_string(o.warmup_steps.value()) + "), plus the hold's steps");
  require_above(o.decay_factor, 0, "decay_factor");
  require(o.decay_steps.empty() || o.decay_steps.front() >= 0, "decay_steps must be at least 0");
  require(std::ranges::adjacent_find(o.decay_steps, std::greater_equal<>{}) == o.decay_steps.end(),
          "decay_steps must ascend");
  require(o.decay_every >= 1, "decay_every must be at least 1");
  require_above(o.power, 0, "power");
  require_above(o.base, 1, "base");
  require(o.shape != Shape::modified_cosine || as_double(o.constant_from) >= warmup_,
          "constant_from must not be within the warm-up");
}

Step LearningRate::counted(Step steps_done) const {
  if (options_.counter == Counter::next) return steps_done + Step{1};
  return options_.counter == Counter::optimizer ? std::max(steps_done, Step{1}) : steps_done;
}

Step LearningRate::warmup() const {
  const auto first_after = static_cast<Step::Rep>(std::ceil(warmup_));
  if (options_.counter == Counter::next) return std::max(Step{first_after - 1}, Step{0});
  return options_.counter == Counter::optimizer && first_after == 1 ? Step{0} : Step{first_after};
}

// Computes in the order of the header's formulas, because even the last bit of the rate eta can change a
// synchronisation period, which is (coefficient / eta)^p rounded down.
double LearningRate::at(Step steps_done) const {
  const Step t = counted(steps_done);
  if (as_double(t) < warmup_) return start_ + as_double(t) * (options_.peak - start_) / warmup_;
  return decayed(options_.shape == Shape::modified_cosine ? std::min(t, options_.constant_from) : t);
}

double LearningRate::decayed(Step t) const {
  const Options& o = options_;
  const double since = std::max(as_double(t) - held_, 0.0);
  const double N = as_double(o.total_steps) - held_;
  const double u = std::min(since, N);
  const auto cosine = [&] { return o.final + 0.5 * (o.peak - o.final) * (1 + std::cos(std::numbers::pi * u / N)); };
  switch (o.shape) {
    case Shape::constant:
      return o.peak;
    case Shape::step: {
      const auto reached = std::ranges::upper_bound(o.decay_steps, t) - o.decay_steps.begin();
      return o.peak * std::pow(o.decay_factor, static_cast<double>(reached));
    }
    case Shape::exponential: {
      const double exponent = since / as_double(o.decay_every);
      return o.peak * std::pow(o.decay_factor, o.staircase ? std::floor(exponent) : exponent);
    }
    case Shape::linear:
      return o.final + (o.peak - o.final) * (N - u) / N;
    case Shape::polynomial:
      return o.final + (o.peak - o.final) * std::pow((N - u) / N, o.power);
    case Shape::cosine:
    case Shape::modified_cosine:
      return cosine();
    case Shape::cosine_step: {
      const double exponent = std::log(cosine()) / std::log(o.base);
      return std::pow(o.base, std::nearbyint(exponent));
    }
  }
  return o.peak;
}

}  // namespace syncopate
