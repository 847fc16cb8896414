// The table [measurements]: what is measured at chosen steps beside the evaluations.
#pragma once

#include "experiments/sections/training_section.hpp"
#include "results/run/run.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// Faults are collected by `root`. An absent table leaves nothing in the resolved configuration.
MeasurementPlan read_measurements(Settings& root, const TrainingSection& training);

}  // namespace syncopate
