#include "algorithms/local_sgd/loss_period.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace syncopate {
namespace {

constexpr double rounding = 1e-12;
constexpr double longest = 1e15;  // beyond any run, and a whole number in both types

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

}  // namespace

LossPeriod::LossPeriod(const Options& options) : options_(options) {
  require(options.initial >= 1 && options.minimum >= 1, "a period must be at least 1 step");
  require(!options.maximum || *options.maximum >= options.minimum, "maximum must be at least the minimum");
  require(options.shrinkage > 0 && options.shrinkage < 1, "the shrinkage must be between 0 and 1");
}

Step LossPeriod::first() const { return clipped(steps(1, 1)); }

Step LossPeriod::next(double loss, double rate, Step before) const {
  const double exact = steps(loss, rate);
  if (!std::isfinite(exact)) return before;
  const Step period = clipped(exact);
  if (period < before || options_.not_below == NotBelow::take) return period;
  if (options_.not_below == NotBelow::keep) return before;
  return clipped(options_.shrinkage * static_cast<double>(before.value()));
}

double LossPeriod::steps(double loss, double rate) const {
  const double ratio = options_.follows_rate ? rate * loss : loss;
  const auto initial = static_cast<double>(options_.initial.value());
  return options_.form == Form::adacomm ? std::sqrt(ratio) * initial : std::sqrt(initial * ratio);
}

Step LossPeriod::clipped(double steps) const {
  const Step period{static_cast<Step::Rep>(std::ceil(std::min(steps, longest) * (1 - rounding)))};
  const Step bounded = options_.maximum ? std::min(period, *options_.maximum) : period;
  return std::max(bounded, options_.minimum);
}

}  // namespace syncopate
