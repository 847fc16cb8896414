// What a step along the first K gradients takes.
// Source:  Dutta et al. 2018; exponential times of mean mu: K mu / N where all workers begin with the step and give
//          gradients until it is made (K-batch-sync), mu (H_N - H_(N-K)) where the K that made the last one begin and
//          the others go on (K-async).
// Units:   seconds.
// Differs: both go by drawn steps, which follow one another as in a run. Nothing is said there of other times in closed
//          form for K-async: the others' gradients are the nearer, the longer they have been computed.
// Checks:  closed forms for exponential and for constant times; simulation.
#pragma once

#include <limits>

#include "algorithms/method/prediction.hpp"

namespace syncopate {

// K-batch-sync: the K-th arrival in N renewal processes that start together. By the drawn steps of all workers, which
// are put together to rounds. None where they are too few for that.
// limit_s: where workers give up a gradient, send a note without values and begin the next; notes are of the K as well,
// but one gradient at least makes an update.
Forecast predict_arrivals(int gradients, const PredictionInput& input,
                          double limit_s = std::numeric_limits<double>::infinity());

// K-async, likewise: updates are followed one after the other.
Forecast predict_arrivals_with_late_work(int gradients, const PredictionInput& input);

}  // namespace syncopate
