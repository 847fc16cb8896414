// Where a training starts instead of at first values of the model's own: what an earlier one has left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace syncopate {

// How much the gradients of single samples differ from their mean: what a larger batch is good for.
// Source:  the simple noise scale of McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", B = tr(S) /
//          |G|^2: at a batch of B samples a step makes half the progress that the best step along the whole gradient
//          makes.
// Method:  with n samples' gradients g_i and their mean g: tr(S) = (mean |g_i|^2 - |g|^2) n / (n - 1), and |G|^2 =
//          |g|^2 - tr(S) / n, since the mean of n is noisy itself. Both are without bias; single samples, since
//          neighbours in a data set may be alike.
// Shapes:  gradients (P,) in double precision.
// Checks:  gradients with a known covariance; the fall of |mean of B|^2 with B.
struct GradientNoise {
  double variance = 0;            // tr(S), of a sample's gradient
  std::optional<double> scale{};  // B, in samples; none where |G|^2 is not above 0: too few samples to see the gradient
};

// At least two samples.
GradientNoise gradient_noise(std::size_t size, std::int64_t samples,
                             const std::function<std::vector<double>(std::int64_t sample)>& gradient_of);

// Elements [from, from + size) of another model's parameters, which become [to, to + size) of this one's.
struct TakenElements {
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t size = 0;
};

struct StartingPoint {
  std::vector<float> parameters;       // (P,)
  std::vector<float> buffers{};        // normalisation statistics; empty: the model's own first ones
  std::vector<TakenElements> taken{};  // these alone are taken, and the rest starts anew; empty: all
};

}  // namespace syncopate
