#include "algorithms/local_sgd/moment_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace syncopate {
namespace {

StatePolicy due_after(Step done, Step period) {
  return done.value() % period.value() == 0 ? StatePolicy::average : StatePolicy::keep;
}

}  // namespace

MomentSchedule::MomentSchedule(Step parameters, const std::array<Step, 2>& moments, StatePolicy buffers)
    : parameters_(parameters), moments_(moments), buffers_(buffers) {
  if (parameters < 1 || moments[0] < 1 || moments[1] < 1)
    throw std::invalid_argument("a period must be at least 1 step");
}

Step MomentSchedule::at(Step done, double, Step left) const {
  Step::Rep next = std::max(left, Step{1}).value();
  for (const Step period : {parameters_, moments_[0], moments_[1]})
    next = std::min(next, period.value() - done.value() % period.value());
  return Step{next};
}

AveragePolicy MomentSchedule::due(Step done, Step end) const {
  const StatePolicy parameters = done == end ? StatePolicy::average : due_after(done, parameters_);
  return {.moments = {due_after(done, moments_[0]), due_after(done, moments_[1])},
          .buffers = parameters == StatePolicy::average ? buffers_ : StatePolicy::keep,
          .parameters = parameters};
}

Step MomentSchedule::cycle() const {
  constexpr Step::Rep longest = 1'000'000'000;
  Step::Rep cycle = parameters_.value(), largest = cycle;
  for (const Step period : moments_) {
    if (period == never) continue;
    largest = std::max(largest, period.value());
    if (cycle <= longest) cycle *= period.value() / std::gcd(cycle, period.value());
  }
  return Step{cycle <= longest ? cycle : largest};
}

double half_life(double beta) { return beta > 0 ? std::log(0.5) / std::log(beta) : 0; }

}  // namespace syncopate
