// The worker and the server of asynchronous SGD as actors of SimGrid, a general simulator of distributed programs.
#pragma once

#include <cstdint>

#include "workers/time/compute_time.hpp"

namespace syncopate {

// Host seconds that SimGrid takes for `gradients` gradients. For each, a worker computes for the given time, sends a
// message to the server and receives one; a message takes `message_s`. Call it only once per process, because SimGrid
// has one engine.
double run_on_simgrid(int workers, std::int64_t gradients, const ComputeTime& compute_time, double message_s);

}  // namespace syncopate
