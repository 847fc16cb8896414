// Rows of steps.csv of methods without collectives: every worker books its own steps, and after the run those of
// equal number become one row.
#pragma once

#include <cstdint>
#include <vector>

#include "workers/cluster/step_rows.hpp"

namespace syncopate {

struct WorkerStep {
  std::int64_t step = 0;
  std::int64_t kept = 0;
  std::int64_t dropped = 0;
  std::int64_t period = 0;
  std::int64_t end_ns = 0;
  std::int64_t bytes = 0;  // sent by this worker and to it by servers, so far
};

// Closes rows in ascending order of steps; those of each worker are, and have each step once. A row ends with the
// last worker that has taken its step, and not before the one above it.
void close_rows(const std::vector<std::vector<WorkerStep>>& by_worker, StepRows& rows);

}  // namespace syncopate
