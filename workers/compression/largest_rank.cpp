#include "workers/compression/largest_rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace syncopate {

// r (n + m) least_rate < n m, as in PowerSgd; with a rate of 0 of any rank that a matrix can have.
int largest_rank(std::span<const ParameterTensor> tensors, double least_rate) {
  std::size_t largest = 0;
  for (const ParameterTensor& tensor : tensors) {
    if (tensor.rows == 0) continue;
    const std::size_t n = tensor.rows, m = tensor.size / n;
    const double bound = static_cast<double>(n * m) / (static_cast<double>(n + m) * least_rate);
    const double below = std::max(0.0, std::ceil(bound) - 1);
    largest = std::max(largest, static_cast<std::size_t>(std::min(below, static_cast<double>(std::min(n, m)))));
  }
  return static_cast<int>(largest);
}

void check_rank(Settings& method, const std::optional<CompressionOptions>& options,
                std::span<const ParameterTensor> tensors) {
  if (!options || options->kind != CompressionOptions::Kind::power || tensors.empty()) return;
  const int largest = largest_rank(tensors, options->least_rate);
  if (options->rank <= largest) return;
  if (options->least_rate == 0 && largest > 0)
    return method.section({"compression"})
        .fault("rank", fmt::format("must be at most {}: no matrix of the model has a higher rank", largest));
  method.section({"compression"})
      .fault("rank",
             largest > 0
                 ? fmt::format("must be at most {}: factors of a higher rank make no matrix of the model smaller "
                               "by more than {}",
                               largest, options->least_rate)
                 : fmt::format("the model has no matrix that factors of any rank make smaller by more than {}",
                               options->least_rate));
}

}  // namespace syncopate
