// Learning-rate schedules as functions of the number of optimizer steps done.
// Source:  the schedules of the reference code of Gu et al. 2024 (repository hmgxr128/QSR).
// Symbols: t steps done, W warm-up steps, T total steps, N = T - W, u = min(t - W, N).
//   warm-up (all):  final + t (peak - final) / W  for t < W; the first step runs at `final`
//   constant:       peak
//   cosine:         final + (peak - final) (1 + cos(pi u / N)) / 2
//   linear:         final + (peak - final) (N - u) / N
//   step:           peak x factor^(decay points already reached)
#pragma once

#include <cstdint>
#include <vector>

#include "workers/units/units.hpp"

namespace syncopate {

class LearningRate {
 public:
  enum class Shape { constant, step, linear, cosine };

  struct Options {
    Shape shape = Shape::constant;
    double peak = 0.1;
    double final = 0;  // reached at T by linear and cosine; start of the warm-up
    Step warmup_steps{};
    Step total_steps{};               // T; needed by linear and cosine
    std::vector<Step> decay_steps{};  // step: where the rate falls, ascending
    double decay_factor = 0.1;
  };

  // Throws std::invalid_argument for rates that are negative or not finite, a total that linear and cosine
  // cannot decay in (T <= W), decay steps out of order and a factor that is not above 0.
  explicit LearningRate(Options options);

  // The rate of the step after `steps_done` (at least 0) steps. Linear and cosine stay at `final` from T on.
  double at(Step steps_done) const;
  const Options& options() const { return options_; }

 private:
  Options options_;
};

}  // namespace syncopate
