// How fast repeated mixing makes values alike.
// Source:  Gelfand's formula, |lambda| = lim |A^k|^(1/k), with k doubled by squaring.
// Cost:    about 20 products of N x N matrices.
// Why not LibTorch: it is loaded where a model is trained, and who asks for this predicts a run without one.
// Checks:  LibTorch's eigenvalues of random matrices; closed forms of graphs.
#pragma once

#include "workers/linear_algebra/matrix.hpp"

namespace syncopate {

// The second largest modulus of the eigenvalues of a square matrix whose columns sum to 1, of which 1 is the largest.
double second_eigenvalue(const Matrix& columns_sum_to_one);

}  // namespace syncopate
