// What a schedule of rounds takes over a whole run: time, by formulas, and communication, by counting.
// Source:  expected maxima of normal sums (workers/theory/order_statistics.hpp).
// Units:   seconds, bytes.
#pragma once

#include "algorithms/local_sgd/rounds.hpp"

namespace syncopate {

// Rounds of Local SGD: each waits for the slowest sum of its steps, and for an average. By sums that are taken as
// normal, and, where these miss the drawn steps or have no variance, by sums of drawn steps. None where the rule does
// not tell lengths beforehand.
Forecast predict_rounds(const SyncPeriod& period, const AveragePolicy& policy, const PredictionInput& input);

// The communication of the rule's rounds over the whole run: an average each, before it gradients at every synchronous
// step.
Communicated communicated_in_rounds(const SyncPeriod& period, const AveragePolicy& policy,
                                    const CommunicationInput& input);

// The same with averages of groups of `size` consecutive workers, the last may be smaller, after each `period` steps.
struct Groups {
  int size;
  Step period;
};
Communicated communicated_in_groups(const SyncPeriod& period, const Groups& groups, const AveragePolicy& policy,
                                    const CommunicationInput& input);

}  // namespace syncopate
