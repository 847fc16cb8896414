// Sums of a worker's drawn steps that follow one another; after the last comes the first again.
// Units:   seconds; steps of all micro-batches.
// Cost:    one addition per drawn step once, then two look-ups per sum.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "workers/theory/sampled_times.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

class DrawnSums {
 public:
  explicit DrawnSums(const SampledTimes& times) : drawn_(times.drawn_steps()), sums_(times.step_times.size()) {
    for (std::size_t i = 0; i < sums_.size(); ++i)
      sums_[i] = times.step_times[i] + (i % drawn_ == 0 ? 0 : sums_[i - 1]);
  }
  double of(std::size_t worker, Step first, Step count) const {
    return until(worker, first + count) - until(worker, first);
  }
  Step drawn() const { return static_cast<Step::Rep>(drawn_); }
  // How many steps workers begin in so many seconds, on average.
  Step begun_within(double seconds) const {
    double sum_s = 0;
    for (std::size_t last = drawn_ - 1; last < sums_.size(); last += drawn_) sum_s += sums_[last];
    return static_cast<Step::Rep>(std::ceil(seconds * static_cast<double>(sums_.size()) / sum_s));
  }

 private:
  double until(std::size_t worker, Step step) const {
    const auto steps = static_cast<std::size_t>(step.value());
    const std::size_t times = steps / drawn_, rest = steps % drawn_;
    const double* const own = &sums_[worker * drawn_];
    return static_cast<double>(times) * own[drawn_ - 1] + (rest == 0 ? 0 : own[rest - 1]);
  }
  std::size_t drawn_;
  std::vector<double> sums_;
};

}  // namespace syncopate
