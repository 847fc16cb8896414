// What a run costs this machine, by its first steps, which are made for the purpose and not kept.
#pragma once

#include <optional>

#include "experiments/execution/execution.hpp"
#include "experiments/execution/run_cost.hpp"

namespace syncopate {

// Takes about a second, and at most a quarter of the run's own steps. Steps are made two, then four, then eight at a
// time and so on, so that what each of them takes is told apart from what evaluations take. Nothing under MPI, where
// times are real anyway; for budgets that do not count steps; for runs that are too short to be worth it, or fail.
// Throws Interrupted.
std::optional<KnownCost> measured_cost(const Run& run, const Machinery& machinery);

}  // namespace syncopate
