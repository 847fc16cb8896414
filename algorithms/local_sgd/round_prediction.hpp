// Predicts a whole run in rounds: its time by formulas, and its communication by counting rounds.
// Source:  expected maxima of normal sums (workers/theory/order_statistics.hpp).
// Units:   seconds, bytes.
#pragma once

#include "algorithms/local_sgd/rounds.hpp"

namespace syncopate {

// Predicts the time of Local SGD. Each round takes the slowest worker's sum of step times, plus the time of an average.
// By the first prediction these sums are normal. A second one, from sums of drawn steps, follows if the first disagrees
// with it, or if there is no first because step times have no variance. There is no prediction if the rule does not
// know the lengths of rounds in advance.
Forecast predict_rounds(const SyncPeriod& period, const AveragePolicy& policy, const PredictionInput& input);

// Counts an all-reduce of gradients in each synchronous step, then one average per round.
Communicated communicated_in_rounds(const SyncPeriod& period, const AveragePolicy& policy,
                                    const CommunicationInput& input);

// Counts in addition averages within groups of `size` consecutive workers (the last group may be smaller), after each
// `period` steps of a round but not at its end.
struct Groups {
  int size;
  Step period;
};
Communicated communicated_in_groups(const SyncPeriod& period, const Groups& groups, const AveragePolicy& policy,
                                    const CommunicationInput& input);

}  // namespace syncopate
