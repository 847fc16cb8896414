// What rounds take in which fragments of the model are averaged one after the other, while workers compute.
// Source:  the recursion of the workers' clocks, into which drawn steps are put. Average k starts at s_k, when the last
//          worker has come to its turn, and ends at e_k = max(s_k, e_{k-1}) + A_k, since those of the same workers go
//          one after another; a worker that comes to its end before e_k waits until then.
//          Without spread H steps take H c + P max(0, A - tau c) where tau <= H / P, and about max(H c, P A) where tau
//          is longer.
// Units:   seconds.
// Cost:    two additions per worker and average.
// Differs: no formula by laws, as with all averages that overlap (overlapped_prediction.hpp). BatchNorm statistics are
//          left out.
// Checks:  whole runs, exactly where all steps are drawn; the closed forms.
#pragma once

#include "algorithms/local_sgd/fragments.hpp"
#include "algorithms/local_sgd/sync_period.hpp"
#include "algorithms/method/prediction.hpp"

namespace syncopate {

Forecast predict_fragments(const SyncPeriod& period, const Fragments& fragments, Step delay,
                           const AveragePolicy& policy, const PredictionInput& input);

}  // namespace syncopate
