// The worker and the server of asynchronous SGD as actors of SimGrid, a general simulator of distributed programs.
#pragma once

#include <cstdint>

#include "workers/time/compute_time.hpp"

namespace syncopate {

// Host seconds that SimGrid takes for `gradients` gradients: each is a message to the server and one back, which take
// `message_s`, between computations of the given times. Call it once per process: SimGrid has one engine.
double run_on_simgrid(int workers, std::int64_t gradients, const ComputeTime& compute_time, double message_s);

}  // namespace syncopate
