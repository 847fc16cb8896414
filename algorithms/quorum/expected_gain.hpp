// What a step along the mean of k workers' gradients is expected to gain, and the number of gradients by which it gains
// most per time.
// Source:  after Xu, Neglia and Sebastianelli 2020, "Dynamic Backup Workers for Parallel Machine Learning", of which
//          the abstract alone is established. The bound is that of a smooth loss: along a mean of k gradients of
//          variance V, at rate eta, with a smoothness of L, the loss falls by at least (eta - L eta^2 / 2) |grad F|^2 -
//          (L eta^2 / 2) V / k.
// Shapes:  scalars; times (N,).   Units: times in seconds; squared norms as the gradients'.
// Checks:  unbiased on drawn gradients; no variance asks for one gradient, equal times for all; brute force otherwise.
#pragma once

#include <optional>
#include <span>

namespace syncopate {

// Of workers' gradients: the squared norm of their expectation, and the variance of one, summed over the parameters.
struct GradientMoments {
  double squared_norm = 0;
  double variance = 0;
};
// From k gradients: the mean of their squared norms, and the squared norm of their mean. Nothing for k = 1, which tells
// nothing of the variance.
std::optional<GradientMoments> gradient_moments(double mean_squared_norm, double squared_norm_of_mean, int gradients);

// The k from 1 on that gains most per time; arrival_s[k - 1]: when the k-th gradient comes. All of them where none
// gains. rate_times_smoothness: eta L, in (0, 2).
int best_gradients(const GradientMoments& moments, double rate_times_smoothness, std::span<const double> arrival_s);

}  // namespace syncopate
