// Collectives over the values of gradients and models: one flat buffer, reduced in place.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>

#include "workers/training/training.hpp"

namespace syncopate {

// A number of elements as MPI counts them. Throws std::length_error beyond 2^31 - 1.
int mpi_count(std::size_t elements);

// Zeros in the size that a time-only run declares, so that its messages load the real network too.
FlatVector time_only_payload(const Training& training);

// All functions are collective over `workers`, and block.

// The sum over the ranks, of `micro_batches` micro-batches in all.
Gradient sum_over(MPI_Comm workers, Training& training, const Gradient& gradient, std::int64_t micro_batches);

// The state with the mean of what `policy` averages; the rest by the policy.
ModelStatePtr mean_over(MPI_Comm workers, Training& training, const ModelStatePtr& state, const AveragePolicy& policy);

// Parameters and buffers of rank `root`; the other ranks keep their own moments.
ModelStatePtr copy_from(MPI_Comm workers, Training& training, const ModelStatePtr& state, int root);

}  // namespace syncopate
