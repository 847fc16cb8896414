// durations.csv: how long each micro-batch took that came to its end, so that it can be replayed.
#pragma once

#include <string>
#include <vector>

#include "workers/cluster/run_record.hpp"

namespace syncopate {

// worker,step,micro_batch,duration_s,added_s: sorted by the first three (by end where one was computed more than once).
// Seconds have all nine decimals, so that the nanoseconds read back exactly. A micro-batch that was stopped has no row.
std::string durations_csv(std::vector<MicroBatchTime> durations);

}  // namespace syncopate
