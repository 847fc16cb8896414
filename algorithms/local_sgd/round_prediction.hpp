// Predicts the rounds of a whole run: their time by formulas, and their communication by counting.
// Source:  expected maxima of normal sums (workers/theory/order_statistics.hpp).
// Units:   seconds, bytes.
#pragma once

#include "algorithms/local_sgd/rounds.hpp"

namespace syncopate {

// Predicts the time of Local SGD. Each round takes the slowest worker's sum of step times, plus an average. These sums
// are taken as normal; sums of drawn steps are used if normal sums disagree with them, or have no variance. No
// prediction if the rule does not know the lengths of rounds in advance.
Forecast predict_rounds(const SyncPeriod& period, const AveragePolicy& policy, const PredictionInput& input);

// The communication of the whole run: an all-reduce of gradients in each synchronous step, then one average per round.
Communicated communicated_in_rounds(const SyncPeriod& period, const AveragePolicy& policy,
                                    const CommunicationInput& input);

// The same with additional averages within groups of `size` consecutive workers (the last group may be smaller), after
// each `period` steps of a round.
struct Groups {
  int size;
  Step period;
};
Communicated communicated_in_groups(const SyncPeriod& period, const Groups& groups, const AveragePolicy& policy,
                                    const CommunicationInput& input);

}  // namespace syncopate
