// Carry-over: what a step drops comes first in the next one.
// Source:  none; this project's own.
// Shapes:  lists of micro-batches.
// Cost:    none.
// Differs: from re-computation: nothing waits for the end of an epoch, and a worker takes along a bounded number.
// Checks:  nothing dropped: nothing changes; each micro-batch is computed exactly once.
#pragma once

#include "algorithms/synchronous/drop_compensation.hpp"

namespace syncopate {

// Dropped micro-batches come first in the next step. What is beyond `at_most` then, the newest, is lost.
std::shared_ptr<const DropCompensation> make_carry_over(int at_most);

std::shared_ptr<const DropCompensation> read_carry_over(Settings& settings, const DropCompensationContext& context);

}  // namespace syncopate
