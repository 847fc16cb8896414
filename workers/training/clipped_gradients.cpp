// Gradients whose global norm has a limit: what a step clips, and what a worker clips before it sends it.
#include <algorithm>
#include <cmath>
#include <utility>

#include "workers/training/course_log.hpp"
#include "workers/training/gradient_sum.hpp"
#include "workers/training/optimizer.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

double norm_of(const GradientSum& sum, double scale, std::size_t begin, std::size_t end) {
  double sum_of_squares = 0;
  float block[longest_block];
  for (std::size_t at = begin; at < end; at += longest_block) {
    const std::size_t n = std::min(longest_block, end - at);
    write_block(sum, scale, at, {block, n});
    for (std::size_t i = 0; i < n; ++i) sum_of_squares += static_cast<double>(block[i]) * block[i];
  }
  return std::sqrt(sum_of_squares);
}

double clipping_factor(double norm, double most) { return std::min(1.0, most / (norm + 1e-6)); }

Gradient Training::clipped(Gradient gradient, std::int64_t micro_batches) {
  if (!objective_ || options_.clip_norm == 0) return gradient;
  const std::size_t parameters = objective_->parameters();
  const CellPtr cell = new_cell();
  const auto clip = [=, size = gradient_size(), most = options_.clip_norm, out = cell](const GradientSum& sum,
                                                                                       double scale) {
    const double norm = norm_of(sum, scale, 0, parameters) / static_cast<double>(micro_batches);
    FlatVector values(size);
    const std::span<float> all = values.span(), statistics = all.subspan(parameters);
    write_block(sum, scale * clipping_factor(norm, most), 0, all.first(parameters));
    std::ranges::fill(statistics, 0.0f);
    if (!statistics.empty()) add_buffers(sum, statistics);
    out->value = std::move(values);
  };
  cell->at = place();
  cell->producer = submit_on(gradient, {}, clip);
  const auto copy = [cell](float* out) { std::ranges::copy(std::as_const(cell->value).span(), out); };
  const CellPtr read[] = {cell};
  const Gradient values = promised(gradient.micro_batches(), travelling(gradient), read, copy);
  return Gradient(values.terms().front().sum, gradient.micro_batches(), gradient.compute_time());
}

}  // namespace syncopate
