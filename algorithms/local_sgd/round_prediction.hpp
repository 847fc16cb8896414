// Predicts a whole run's rounds: time, by formulas, and communication, by counting.
// Source:  expected maxima of normal sums (workers/theory/order_statistics.hpp).
// Units:   seconds, bytes.
#pragma once

#include "algorithms/local_sgd/rounds.hpp"

namespace syncopate {

// The rounds of Local SGD: each waits for the slowest sum of its steps, and for an average. Uses normal sums, or sums
// of drawn steps if normal sums disagree with those or have no variance. None if the rule does not know lengths in
// advance.
Forecast predict_rounds(const SyncPeriod& period, const AveragePolicy& policy, const PredictionInput& input);

// The communication of the rule's rounds over the whole run: one average each; before them, gradients at every
// synchronous step.
Communicated communicated_in_rounds(const SyncPeriod& period, const AveragePolicy& policy,
                                    const CommunicationInput& input);

// The same with averages of groups of `size` consecutive workers (the last may be smaller) after each `period` steps.
struct Groups {
  int size;
  Step period;
};
Communicated communicated_in_groups(const SyncPeriod& period, const Groups& groups, const AveragePolicy& policy,
                                    const CommunicationInput& input);

}  // namespace syncopate
