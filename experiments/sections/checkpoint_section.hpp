// The table [checkpoint]: how often a long run keeps what it has come to.
#pragma once

#include "experiments/sections/experiment.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// Faults are collected by `root`. An absent table leaves nothing in the resolved configuration.
CheckpointPlan read_checkpoint(Settings& root);

}  // namespace syncopate
