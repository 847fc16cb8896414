// How pushes go on while their receivers compute: by the paper, or as its authors released it.
// Source: Assran et al. 2019, "Stochastic Gradient Push for Distributed Deep Learning" (overlap SGP).
#pragma once

#include "algorithms/gossip/pushes.hpp"
#include "algorithms/gossip/stochastic_gradient_push.hpp"

namespace syncopate {

// An eighth of what a worker has where nobody has left. With overlap messages under way hold back what it has not kept.
// As released fast workers exchange more often than the slow ones that they hear from, and have the less.
double least_weight(const PushOptions& options, const GossipGraph& graph);

// After the step: an exchange every max(tau, 1) steps, of which the one before the last has ended by then.
void exchange_as_in_paper(const Worker& worker, Step overlap, Pushes& pushes);

// Before the gradient: the next exchange begins once the last has ended, which is waited for after tau steps alone.
void exchange_as_released(const Worker& worker, Step overlap, Pushes& pushes);

}  // namespace syncopate
