// What a step along the first K gradients takes, where all workers begin with it and go on giving gradients until it is
// made: the K-th arrival in N renewal processes that start together.
// Source:  Dutta et al. 2018 (K-batch-sync); exponential times: K mu / N.
// Units:   seconds.
// Checks:  closed forms for exponential and for constant times; simulation.
#pragma once

#include <limits>

#include "algorithms/method/prediction.hpp"

namespace syncopate {

// By the drawn steps of all workers, which are put together to rounds. None where they are too few for that, or
// messages wait for each other on shared links.
// limit_s: where workers give up a gradient and begin the next, which is one of the K all the same.
Forecast predict_arrivals(int gradients, const PredictionInput& input,
                          double limit_s = std::numeric_limits<double>::infinity());

}  // namespace syncopate
