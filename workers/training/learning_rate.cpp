#include "workers/training/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>
#include <utility>

namespace syncopate {

namespace {

using Shape = LearningRate::Shape;

double as_double(Step steps) { return static_cast<double>(steps.value()); }

}  // namespace

LearningRate::LearningRate(Options options) : options_(std::move(options)) {
  const Options& o = options_;
  start_ = o.warmup_start.value_or(o.final);
  for (const double rate : {o.peak, o.final, start_})
    if (!(rate >= 0) || std::isinf(rate))
      throw std::invalid_argument("a learning rate must be finite and at least 0, found " + std::to_string(rate));
  warmup_ = as_double(o.warmup_steps) + o.warmup_share * as_double(o.total_steps);
  held_ = warmup_ + as_double(o.hold_steps) + o.hold_share * as_double(o.total_steps);
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
