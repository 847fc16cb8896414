// Arithmetic on matrices for the optimizers Muon and Dion (training/optimizers.hpp), with LibTorch.
#pragma once

#include <cstddef>

#include "workers/training/optimizers.hpp"

namespace syncopate {

// Replaces a matrix (rows, columns), stored by rows, by the result of these Newton-Schulz iterations. Any thread may
// call it. Cost: per iteration 4 m^2 n + 2 m^3 floating-point operations, for the smaller dimension m.
void orthogonalise_by_torch(float* matrix, std::size_t rows, std::size_t columns, NewtonSchulz iterations);

// A PowerIteration of Dion. Any thread may call it.
void iterate_power_by_torch(float* momentum, float* basis, float* direction, std::size_t rows, std::size_t columns,
                            std::size_t rank, double moved);

}  // namespace syncopate
