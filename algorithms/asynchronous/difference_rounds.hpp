// Rounds of asynchronous local training: a worker takes its server's newest model, takes local steps, and sends the
// difference start - end, again and again, and waits for nobody. What the server makes of it is the method's.
// Source:  Liu et al. 2024, "Asynchronous Local-SGD Training for Language Modeling".
// Shapes:  model, difference: (P,) flat float32.   Units: seconds on the worker's own clock.
// Cost:    per round P floats up and P down; of DyLU 8 bytes more each way.
// Differs: what becomes of moments, schedules, lost states and used-up data: async_local_sgd.hpp.
// Checks:  those of asynchronous Local SGD.
#pragma once

#include <optional>

#include "algorithms/asynchronous/steps_by_speed.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct DifferenceRounds {
  Step local_steps{1};                           // H
  std::optional<DynamicSteps> steps_by_speed{};  // none: all take H
  StatePolicy moments = StatePolicy::keep;       // of a worker's optimizer, at each round's start; or reset

  // That any difference is of, unless its worker's data are used up.
  Step fewest_steps() const { return steps_by_speed ? steps_by_speed->minimum : local_steps; }
};

// A worker's whole life.
void run_rounds(Worker& worker, const DifferenceRounds& rounds);

// Its pace: a cycle is H local steps, the difference and the next model. By `steps_by_speed` they are fewer, by the
// fastest worker of the server.
struct RoundCosts {
  double around_s = 0;   // of a difference and a model, to and from its server
  double on_link_s = 0;  // for which the longer of them occupies the server's link; a lower bound where this is not 0
  int regions = 1;       // of consecutive ranks, as many in each, with a server of their own
};
Forecast predict_rounds(const DifferenceRounds& rounds, const RoundCosts& costs, const PredictionInput& input);

// The keys `local_steps`, then `steps_by_speed` and `minimum_steps`; and the key `moments`.
DifferenceRounds read_difference_rounds(Settings& settings, const AlgorithmContext& context);
StatePolicy read_moments_of_rounds(Settings& settings);

}  // namespace syncopate
