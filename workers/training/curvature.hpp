// Sharpness of a loss: the largest eigenvalue of its Hessian by power iteration, its trace by Hutchinson's estimator.
// Source:  the stopping rules and random vectors of PyHessian (Yao et al. 2020); Hutchinson 1990.
// Shapes:  vectors (P,) in double precision.
// Cost:    a product of the Hessian and a vector per iteration or draw, at most `most_products` each; twice as many
//          where the eigenvalue of the largest magnitude is negative.
// Differs: power iteration finds the largest magnitude. Where that is a negative eigenvalue, the Hessian is shifted by
//          it and the iteration repeated, so that what is returned is the largest one.
// Checks:  diagonal matrices; a linear softmax regression's Hessian, put together in double precision; gradient descent
//          is stable exactly below 2 / the largest eigenvalue.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace syncopate {

using HessianProduct = std::function<std::vector<double>(std::span<const double> vector)>;

struct CurvatureOptions {
  int most_products = 100;
  double tolerance = 1e-3;  // it stops once the estimate changes by less than this part
  std::uint64_t seed = 0;   // of the vectors, which are the same at every call
};

double largest_eigenvalue(std::size_t size, const HessianProduct& product, const CurvatureOptions& options);
// The mean of v^T H v over random vectors of signs: exact in one draw where H is diagonal.
double hessian_trace(std::size_t size, const HessianProduct& product, const CurvatureOptions& options);

}  // namespace syncopate
