// An objective whose gradients a test lists by worker and step. They do not depend on the parameters.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/workers/pull_objective.hpp"

namespace syncopate {

class ListedGradients : public PullObjective {
 public:
  using Listed = std::function<std::vector<float>(const MicroBatch&)>;

  ListedGradients(std::size_t size, Listed listed, std::vector<ParameterTensor> tensors = {})
      : PullObjective(size, size), listed_(std::move(listed)), tensors_(std::move(tensors)) {}

  PartialGradient gradient(const float*, const float*, std::span<const MicroBatch> micro_batches) const override {
    auto values = std::make_shared<std::vector<float>>(parameters(), 0.0f);
    for (const MicroBatch& micro_batch : micro_batches) {
      const std::vector<float> own = listed_(micro_batch);
      for (std::size_t i = 0; i < own.size(); ++i) (*values)[i] += own[i];
    }
    PartialGradient result;
    result.segments.push_back({.offset = 0, .size = parameters(), .data = values->data(), .owner = values});
    return result;
  }
  std::vector<float> initial_parameters(std::uint64_t) const override { return std::vector<float>(parameters(), 0.0f); }
  std::vector<ParameterTensor> tensors() const override {
    return tensors_.empty() ? PullObjective::tensors() : tensors_;
  }

 private:
  Listed listed_;
  std::vector<ParameterTensor> tensors_;
};

}  // namespace syncopate
