// Re-computation: what was dropped is computed before the next epoch, in additional steps.
// Source:  Giladi et al. 2023, "DropCompute".
// Shapes:  lists of micro-batches.
// Cost:    steps for what was dropped, without a threshold, and an all-gather of N numbers per epoch.
// Differs: what is computed again counts as dropped in its own step and as kept in the added one; what the last
//          epoch drops stays dropped.
// Checks:  nothing dropped: nothing changes; each micro-batch is computed exactly once.
#pragma once

#include "algorithms/synchronous/drop_compensation.hpp"

namespace syncopate {

// Before every step whose number is a multiple of `every_steps` all micro-batches dropped since are computed, by
// the worker that dropped them, in additional steps of at most M.
std::shared_ptr<const DropCompensation> make_recomputation(Step every_steps);

std::shared_ptr<const DropCompensation> read_recomputation(Settings& settings, const DropCompensationContext& context);

}  // namespace syncopate
