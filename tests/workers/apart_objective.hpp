// A PullObjective that can return a separate gradient for each list of micro-batches of a pass. It records the passes'
// lists, and how many of these gradients were returned as vectors.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "tests/workers/pull_objective.hpp"

namespace syncopate {

class ApartObjective : public PullObjective {
 public:
  using Lists = std::vector<std::vector<MicroBatch>>;
  using PullObjective::PullObjective;

  bool has_batched_gradients() const override { return true; }
  std::unique_ptr<const GradientsApart> batched_gradients(
      const float* parameters, const float*, std::span<const std::span<const MicroBatch>> lists) const override {
    Lists of_pass;
    for (const auto& list : lists) of_pass.emplace_back(list.begin(), list.end());
    {
      const std::lock_guard lock(mutex_);
      passes.insert(of_pass);
    }
    return std::make_unique<const Apart>(*this, std::vector<float>(parameters, parameters + this->parameters()),
                                         std::move(of_pass));
  }

  mutable std::multiset<Lists> passes;
  mutable std::atomic<int> made = 0;

 private:
  class Apart : public GradientsApart {
   public:
    Apart(const ApartObjective& objective, std::vector<float> parameters, Lists lists)
        : objective_(objective), parameters_(std::move(parameters)), lists_(std::move(lists)) {}
    PartialGradient of(std::size_t list) const override {
      ++objective_.made;
      return objective_.gradient(parameters_.data(), nullptr, lists_[list]);
    }
    double loss_sum(std::size_t list) const override {
      return objective_.gradient(parameters_.data(), nullptr, lists_[list]).loss_sum;
    }
    void add_to(float* out, std::size_t list) const override {
      const PartialGradient gradient = objective_.gradient(parameters_.data(), nullptr, lists_[list]);
      for (const GradientSegment& segment : gradient.segments)
        for (std::size_t i = 0; i < segment.size; ++i) out[segment.offset + i] += segment.data[i];
    }

   private:
    const ApartObjective& objective_;
    std::vector<float> parameters_;
    Lists lists_;
  };
  mutable std::mutex mutex_;
};

}  // namespace syncopate
