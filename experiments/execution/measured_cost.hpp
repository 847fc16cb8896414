// What a run costs this machine, by its first steps, which are made for the purpose and not kept.
#pragma once

#include <optional>

#include "experiments/execution/execution.hpp"
#include "experiments/execution/run_cost.hpp"

namespace syncopate {

// Takes a second or three, up to ten where two evaluations take seconds, and less than half of the run's own steps. The
// first step is made, then the first 4, the first 16 and so on, until what the steps take is clear beside what
// evaluations take. Nothing under MPI, where times are real anyway; for budgets that do not count steps; for runs that
// are too short to be worth it, or fail. Throws Interrupted.
std::optional<KnownCost> measured_cost(const Run& run, const Machinery& machinery);

}  // namespace syncopate
