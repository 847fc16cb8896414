// From [tune] to the trials of all methods.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "experiments/sections/expansion.hpp"
#include "experiments/sections/tune_section.hpp"
#include "experiments/sections/tuning_plan.hpp"
#include "workers/settings/fault_list.hpp"

namespace syncopate {

// Of the grids as they are written, at every point of what varies but for what is fixed.
std::uint64_t number_of_trials(const TuneSection& tune, const std::vector<SweepAxis>& axes);

// `points`: of these runs, the first that makes each. Null after faults, which are added: settings that cannot be read,
// or make one run; a measure that there is not, or that is of the test set; none where no model is trained; one of the
// validation split where nothing is held out.
std::shared_ptr<const TuningPlan> plan_tuning(const std::shared_ptr<const Expansion>& all, const TuneSection& tune,
                                              std::span<const Run> runs, std::span<const std::size_t> points,
                                              FaultList& faults);

}  // namespace syncopate
