// The short, time-only simulation behind a prediction: the run's own method, delays and network on the virtual
// clock, without model and data, for as many steps as a bound on work allows.
// Units:   seconds of virtual time, steps of the experiment file.
#pragma once

#include <cstdint>
#include <optional>

#include "experiments/sections/experiment.hpp"

namespace syncopate {

struct SimulatedTime {
  Step steps{};        // simulated
  bool whole = false;  // to the end of the budget; false: the first steps, extrapolated to the rest
  double step_time_s = 0;
  std::optional<double> error_s{};       // standard error of step_time_s
  double drop_rate = 0;                  // dropped / (kept + dropped)
  double communication_share = 0;        // of all workers' time
  double computing_share = 0;            // of the same: of what was kept and of what was discarded
  double longest_round_s = 0;            // of those simulated
  double micro_batches_per_s = 0;        // that went into the model
  std::optional<double> pace_error{};    // standard error of micro_batches_per_s
  std::optional<double> total_time_s{};  // of the budget; none where that cannot be told
  double rounds = 0;  // rows of steps.csv, of the whole run; of all that is not whole at the last pace
  double bytes = 0;   // that all workers communicate in it, likewise
};

// Roughly 20 ns of this machine's time each, so that the length of a simulation depends on the file alone.
std::int64_t work_of(const Run& run, Step steps);

// Simulates at most so many steps. Throws RunFailure, Interrupted.
SimulatedTime simulate_time(const Run& run, Step at_most);

}  // namespace syncopate
