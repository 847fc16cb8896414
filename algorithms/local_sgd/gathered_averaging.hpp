// Dynamic averaging by a test that all workers share: the mean of their squared distances from the last average.
// Differs: from Kamp et al. 2018 in that every look at the distances is an all-gather, and averages are of all.
#pragma once

#include "algorithms/local_sgd/dynamic_averaging.hpp"

namespace syncopate {

void average_by_gathered_distances(Worker& worker, const DynamicOptions& options);

}  // namespace syncopate
