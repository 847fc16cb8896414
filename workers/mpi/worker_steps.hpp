// Rows of steps.csv of methods without collectives: every worker books its own steps, and after the run those of
// equal number become one row.
#pragma once

#include <vector>

#include "workers/cluster/step_rows.hpp"

namespace syncopate {

// Closes rows in ascending order of steps; those of each worker are, and have each step once, with the bytes that have
// been sent by it and to it by servers until then. A row ends with the last worker that has taken its step, and not
// before the one above it.
void close_rows(const std::vector<std::vector<StepRow>>& by_worker, StepRows& rows);

}  // namespace syncopate
