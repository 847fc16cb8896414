// Baselines of benchmarks: typical training loops in LibTorch, without a cluster.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "workers/data/dataset.hpp"

namespace syncopate {

// A whole split as tensors, normalised: inputs (n, features) float32, labels (n,) int64.
struct TensorData {
  torch::Tensor inputs;
  torch::Tensor labels;

  explicit TensorData(const Dataset& dataset) {
    const auto n = dataset.size().train;
    inputs = torch::empty({n, dataset.size().shape.features()});
    labels = torch::empty({n}, torch::kInt64);
    std::vector<std::uint32_t> all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), 0u);
    dataset.gather(Split::train, all, inputs.data_ptr<float>(), labels.data_ptr<std::int64_t>());
  }
};

// MLP 784-256-10, SGD with momentum 0.9, batches drawn from a shuffled epoch by index_select.
class PlainLoop {
 public:
  PlainLoop(const TensorData& data, std::int64_t batch)
      : data_(data),
        batch_(batch),
        model_(torch::nn::Linear(784, 256), torch::nn::ReLU(), torch::nn::Linear(256, 10)),
        optimizer_(model_->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)) {}

  void step() {
    if (!order_.defined() || position_ + batch_ > order_.size(0)) {
      order_ = torch::randperm(data_.inputs.size(0));
      position_ = 0;
    }
    const auto indices = order_.narrow(0, position_, batch_);
    position_ += batch_;
    optimizer_.zero_grad();
    const auto logits = model_->forward(data_.inputs.index_select(0, indices));
    torch::nn::functional::cross_entropy(logits, data_.labels.index_select(0, indices)).backward();
    optimizer_.step();
  }

 private:
  const TensorData& data_;
  std::int64_t batch_;
  torch::nn::Sequential model_;
  torch::optim::SGD optimizer_;
  torch::Tensor order_;
  std::int64_t position_ = 0;
};

}  // namespace syncopate
