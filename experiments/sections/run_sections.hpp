// The tables [budget] and [evaluation]: when a run ends, and when its model is looked at.
#pragma once

#include "experiments/sections/experiment.hpp"
#include "experiments/sections/training_section.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// Epochs become steps; the first limit reached ends the run. Faults are collected by `root`.
struct BudgetSection {
  Budget limits;
  bool counts_steps = false;  // also where their number is not known for faults
};
BudgetSection read_budget(Settings& root, const EpochLength& epoch);

EvaluationPlan read_evaluation(Settings& root, const TrainingSection& training);

}  // namespace syncopate
