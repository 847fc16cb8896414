// An objective whose results are formulas: micro-batch (worker, step, index) has the loss 1/2 |theta - target|^2, so
// its gradient is theta - target. Records evaluated micro-batches, so that tests see which are not evaluated.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "workers/training/objective.hpp"

namespace syncopate {

class PullObjective : public Objective {
 public:
  explicit PullObjective(std::size_t size = 4, std::size_t weights = 4, std::int64_t chunk_samples = 64)
      : size_(size), weights_(weights), chunk_samples_(chunk_samples) {}

  // Targets are small integers, which are exact in float32.
  static float target(const MicroBatch& micro_batch, std::size_t i) {
    return static_cast<float>(micro_batch.worker.value + 10 * (micro_batch.step.value() % 7) + 3 * micro_batch.index +
                              static_cast<int>(i % 5));
  }

  std::size_t parameters() const override { return size_; }
  std::size_t weights() const override { return weights_; }
  std::vector<float> initial_parameters(std::uint64_t) const override { return std::vector<float>(size_, 1.0f); }

  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override;

  std::int64_t chunk_samples() const override { return chunk_samples_; }
  std::int64_t samples_per_micro_batch() const override { return 1; }
  std::int64_t steps_per_epoch() const override { return 0; }
  std::int64_t evaluation_samples(Split) const override { return 1; }
  EvaluationSums evaluate(const float* parameters, const float*, Split, std::int64_t, std::int64_t) const override {
    return {.loss = parameters[0], .correct = 0, .samples = 1};
  }
  bool has_accuracy() const override { return false; }

  mutable std::set<MicroBatch> evaluated;
  mutable std::int64_t evaluations = 0;
  mutable std::int64_t calls = 0;

 private:
  std::size_t size_;
  std::size_t weights_;
  std::int64_t chunk_samples_;
  mutable std::mutex mutex_;
};

}  // namespace syncopate
