// A server's step to the mean of what workers have come to in unequal numbers of local steps.
// Source:  Zhu, Zhang, Wang 2024 (STSyn): the plain mean; code of the authors: without who has most steps.
// Shapes:  models, differences (start - end): (P,) flat float32.
// Cost:    one combination of as many vectors as there are workers.
// Checks:  recursions in double precision; equal steps: both weights are the plain mean.
#pragma once

#include <vector>

#include "workers/server.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

struct UnevenMean {
  enum class Weights { equal, steps };
  Weights weights = Weights::equal;
  bool leaves_out_most = false;  // the worker with most steps, of several the first, where there are two or more
};

// Accepts the differences of all workers that have one, by rank, of which there is at least one, and publishes.
void step_to_mean(Server& server, std::vector<Message> differences, const UnevenMean& how);

// The keys `weights` and `leaves_out_most`.
UnevenMean read_uneven_mean(Settings& settings);

}  // namespace syncopate
