// The table [recording]: what a run leaves beside the results that every run has.
#pragma once

#include "experiments/sections/experiment.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// Faults are collected by `root`. An absent table leaves nothing in the resolved configuration.
RecordingPlan read_recording(Settings& root);

}  // namespace syncopate
