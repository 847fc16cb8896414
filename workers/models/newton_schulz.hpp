// The products of matrices of the optimizer Muon (training/optimizers.hpp), which LibTorch computes.
#pragma once

#include <cstddef>

#include "workers/training/optimizers.hpp"

namespace syncopate {

// Replaces a matrix (rows, columns), stored by rows, by the result of these Newton-Schulz iterations. Any thread may
// call it. Cost: per iteration 4 m^2 n + 2 m^3 floating-point operations, for the smaller dimension m.
void orthogonalise_by_torch(float* matrix, std::size_t rows, std::size_t columns, NewtonSchulz iterations);

}  // namespace syncopate
