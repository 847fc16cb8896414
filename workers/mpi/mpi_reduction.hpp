// Collectives over the values of gradients and models: one flat buffer, reduced in place.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "workers/training/training.hpp"

namespace syncopate {

// A number of elements as MPI counts them. Throws std::length_error beyond 2^31 - 1.
int mpi_count(std::size_t elements);

// What a time-only run moves instead of values, so that its messages load the real network too.
FlatVector zeros_of(Bytes bytes);

// All functions are collective over `workers`, and block.

// The sum over the ranks, of `micro_batches` micro-batches in all. `wide`: in double precision, the same
// on all ranks.
Gradient sum_over(MPI_Comm workers, Training& training, const Gradient& gradient, std::int64_t micro_batches,
                  bool wide);

void sum_over(MPI_Comm workers, std::span<double> numbers);

// The state with the mean of what `policy` averages; the rest by the policy. `share`: of this rank's state
// in the mean; none, on all ranks alike: equal shares.
ModelStatePtr mean_over(MPI_Comm workers, Training& training, const ModelStatePtr& state, const AveragePolicy& policy,
                        std::optional<double> share);

// Parameters and buffers of rank `root`; the other ranks keep their own moments.
ModelStatePtr copy_from(MPI_Comm workers, Training& training, const ModelStatePtr& state, int root);

}  // namespace syncopate
