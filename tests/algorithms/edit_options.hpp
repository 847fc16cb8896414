// EDiT with rounds by steps and by time, and workers that are unequally fast.
#pragma once

#include <memory>
#include <vector>

#include "algorithms/local_sgd/edit.hpp"
#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {

inline constexpr double infinity = PenaltyOptions::infinity;

inline std::shared_ptr<const OuterOptimizer> diloco(double rate = 0.7, double momentum = 0.8) {
  return make_diloco(rate, momentum);
}

inline EditOptions by_steps(int period, const PenaltyOptions& penalty = {}) {
  EditOptions options{.penalty = penalty, .period = make_constant_period(period), .outer = diloco()};
  return options;
}

inline EditOptions by_time(double seconds, const PenaltyOptions& penalty = {}) {
  EditOptions options{.penalty = penalty, .timed = {.length = from_seconds(seconds)}, .outer = diloco()};
  return options;
}

// Steps of 1, 1.4 and 2 s; after 3.5 s of each round the workers end their 4th, 3rd and 2nd step.
inline const SimulatedRun uneven{
    .rate = 0.1, .budget = {.steps = 8}, .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.4, 1.0})}};

}  // namespace syncopate
