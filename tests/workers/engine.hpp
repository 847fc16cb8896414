// A training engine on the pull objective.
#pragma once

#include <future>
#include <memory>
#include <vector>

#include "tests/workers/pull_objective.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

struct Engine {
  explicit Engine(int threads = 2, double momentum = 0, std::size_t size = 4, double clip_norm = 0)
      : Engine(std::make_shared<PullObjective>(size, size), make_sgd({.momentum = momentum}), {.clip_norm = clip_norm},
               threads) {}
  Engine(std::shared_ptr<PullObjective> objective, std::shared_ptr<const Optimizer> optimizer,
         Training::Options options = {}, int threads = 2)
      : objective(std::move(objective)),
        executor(threads),
        training(this->objective, std::move(optimizer), options, executor) {}

  Gradient promise(const ModelStatePtr& at, int worker, int step = 0, int index = 0) {
    return Gradient(at, {Rank{worker}, step, index}, Duration{5});
  }
  // The model after a step of plain SGD at rate 1 along the worker's micro-batch: its target, worker + i % 5.
  ModelStatePtr at_target(const ModelStatePtr& from, int worker) {
    return training.descend(from, promise(from, worker), 1.0);
  }

  std::vector<float> values(const CellPtr& cell) {
    executor.wait(producer(cell));
    return {cell->value.span().begin(), cell->value.span().end()};
  }

  std::shared_ptr<PullObjective> objective;
  Executor executor;
  Training training;
};

// Prevents an executor with one thread from running any task until it is released.
class Blockade {
 public:
  explicit Blockade(Executor& executor) {
    executor.submit([released = std::shared_future<void>(released_.get_future())] { released.wait(); });
  }
  void release() { released_.set_value(); }

 private:
  std::promise<void> released_;
};

// PullObjective with two normalisation statistics: (w, 8 s + i) after worker w's micro-batch i of step s, in training
// and in recalibration.
class PullWithStatistics : public PullObjective {
 public:
  using PullObjective::PullObjective;

  static std::vector<float> statistics_of(std::span<const MicroBatch> micro_batches) {
    std::vector<float> sum(2, 0.0f);
    for (const MicroBatch& m : micro_batches) {
      sum[0] += static_cast<float>(m.worker.value);
      sum[1] += static_cast<float>(8 * m.step.value() + m.index);
    }
    return sum;
  }

  std::size_t buffers() const override { return 2; }
  std::vector<float> initial_buffers() const override { return {-1.0f, -2.0f}; }
  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override {
    auto result = PullObjective::gradient(parameters, buffers, micro_batches);
    result.buffers_sum = statistics_of(micro_batches);
    return result;
  }
  std::vector<float> batch_statistics(const float*, std::span<const MicroBatch> micro_batches) const override {
    auto mean = statistics_of(micro_batches);
    for (float& value : mean) value /= static_cast<float>(micro_batches.size());
    return mean;
  }
};

}  // namespace syncopate
