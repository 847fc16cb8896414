// What rounds take whose averages are one round late.
// Source:  the recursion of a worker's clock: its round ends at e_i = t_i + (its H steps); the next one begins at
//          t_i' = max(e_i, max_j t_j + A), where all have begun the average that is under way, and A is what it takes.
//          Drawn steps are put into it. Without spread a round takes max(H c of the slowest, A).
// Units:   seconds.
// Cost:    one addition per worker and round.
// Differs: there is no formula by laws: what a worker makes up for in the next round depends on all the rounds before.
//          Between two bounds it may be anywhere: max(E[slowest worker's round], A), which a late worker takes where A
//          leaves room for its jitter, and E[max(the slowest round, A)]. Drawn steps that the run is longer than are
//          gone through again.
// Checks:  whole runs of the methods, exactly where all steps are drawn; the closed form; the two bounds.
#pragma once

#include "algorithms/local_sgd/sync_period.hpp"
#include "algorithms/method/prediction.hpp"

namespace syncopate {

Forecast predict_overlapped_rounds(const SyncPeriod& period, const AveragePolicy& policy, const PredictionInput& input);

}  // namespace syncopate
