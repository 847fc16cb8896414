// What a checkpoint is of: it is taken up by a program that would compute the same bits, of the same run.
#pragma once

#include "results/directory/checkpoint_file.hpp"
#include "results/run/run.hpp"

namespace syncopate {

// What decides to the bit what the run computes, and which course it takes; `besides` is of the run's processes.
// `is_common`: to several, whose processors may be unlike: what depends on them stands in each part.
CheckpointIdentity checkpoint_identity(const Run& run, const CheckpointIdentity& besides, bool is_common = false);

}  // namespace syncopate
