// How much of each run `predict` simulates: all of it where a bound on the work of all runs together allows, else its
// first steps, where these stand for the rest. What methods need to settle comes on top of that bound.
// Units:   as time_simulation.hpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiments/execution/time_simulation.hpp"

namespace syncopate {

struct Simulation {
  std::optional<SimulatedTime> time{};
  std::string why_none{};  // empty if there is one
  bool failed = false;     // there is none because the run would fail
};

// Run by run. Throws Interrupted.
std::vector<Simulation> simulate_all(const std::vector<Run>& runs);

// What so many first steps of a run take, as if they were its budget; none where they are too many, or fail.
std::optional<SimulatedTime> simulate_first_steps(const Run& run, Step steps);

}  // namespace syncopate
