// One round of local steps, for methods that need to know the rate that it was taken at.
#pragma once

#include "algorithms/local_sgd/sync_period.hpp"
#include "workers/worker.hpp"

namespace syncopate {

// Takes the rule's next round on this worker alone, less of it where the budget or its own data end. The mean learning
// rate of its steps; 0 of none.
double take_round(Worker& worker, const SyncPeriod& period);

}  // namespace syncopate
