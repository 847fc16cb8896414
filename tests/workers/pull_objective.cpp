#include "tests/workers/pull_objective.hpp"

namespace syncopate {

PartialGradient PullObjective::gradient(const float* parameters, const float*,
                                        std::span<const MicroBatch> micro_batches) const {
  auto values = std::make_shared<std::vector<float>>(size_, 0.0f);
  for (const MicroBatch& micro_batch : micro_batches)
    for (std::size_t i = 0; i < size_; ++i) (*values)[i] += parameters[i] - target(micro_batch, i);
  PartialGradient result;
  for (const MicroBatch& micro_batch : micro_batches)
    for (std::size_t i = 0; i < size_; ++i) {
      const double distance = parameters[i] - target(micro_batch, i);
      result.loss_sum += distance * distance / 2;
    }
  // Two segments, so that tests have a border between segments.
  const std::size_t half = size_ / 2;
  result.segments.push_back({.offset = 0, .size = half, .data = values->data(), .owner = values});
  result.segments.push_back({.offset = half, .size = size_ - half, .data = values->data() + half, .owner = values});
  const std::lock_guard lock(mutex_);
  ++calls;
  for (const MicroBatch& micro_batch : micro_batches) evaluated.insert(micro_batch);
  evaluations += static_cast<std::int64_t>(micro_batches.size());
  return result;
}

}  // namespace syncopate
