// The objective of a network on a data set, with LibTorch. Only sources with LibTorch include it.
// For texts the loss of a micro-batch is the mean over its labels (a text's class, or the tokens to predict). A step
// uses the mean of the micro-batches' means, which differs from the mean over all labels if micro-batches have
// different numbers of labels. An evaluation sums over all labels.
//
// A thread stores only its input buffers. Parameters are views of the flat memory of a model's state, and the
// tensors of the backward pass become the segments of the gradient, so neither is copied.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "workers/data/dataset.hpp"
#include "workers/data/sampler.hpp"
#include "workers/models/batch.hpp"
#include "workers/models/device_tensors.hpp"
#include "workers/models/network.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// Cross-entropy with label smoothing: (1 - e) (-log p_label) + e (mean over all classes of -log p). This is the
// cross-entropy with the target (1 - e) onehot + e / classes.
// Source:  Szegedy et al. 2016, "Rethinking the Inception Architecture"; equals torch.nn.CrossEntropyLoss.
// Shapes:  logits (n, classes), labels (n,); results are sums over the samples.
struct LossSums {
  at::Tensor minimised;  // the loss with smoothing
  at::Tensor reported;   // the loss without smoothing; the same tensor if there is no smoothing
};

// With `weights` (n,), each sample's loss is multiplied by its weight. Do not give both `weights` and `mixed`.
LossSums cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double smoothing,
                       const MixedLabels* mixed = nullptr, const at::Tensor& weights = {});

// The gradients of loss x `share`, one tensor per parameter in the network's order; zeros if the loss does not depend
// on the parameter.
std::vector<at::Tensor> gradients_of(const at::Tensor& loss, const std::vector<at::Tensor>& parameters,
                                     double share = 1);

// Limits LibTorch to one thread per thread of the program, because independent gradients are computed in parallel.
inline void use_one_thread() {
  thread_local const bool done = (at::set_num_threads(1), true);
  static_cast<void>(done);
}

class TorchObjective : public Objective {
 public:
  // The sampler's options must count the data set's training samples. Throws DataFault if there are too few for one
  // step. `chunk_samples`: number of samples that are fastest to evaluate together. Label smoothing changes gradients,
  // but not reported losses. `mixup`: alpha (forward.hpp); 0: none. For numbers instead of classes the loss is the
  // squared error, and neither mixup nor label smoothing is allowed. For texts there is no mixup, and the network must
  // have no buffers.
  TorchObjective(Network network, std::shared_ptr<const Dataset> dataset, const SamplerOptions& sampling,
                 std::int64_t chunk_samples, double label_smoothing = 0, double mixup = 0,
                 const Arithmetic& arithmetic = {});

  std::size_t parameters() const override { return network_.parameter_floats(); }
  std::size_t weights() const override { return network_.weight_floats(); }
  std::vector<ParameterTensor> tensors() const override { return network_.tensors(); }
  std::vector<float> initial_parameters(std::uint64_t seed) const override {
    return syncopate::initial_parameters(network_, seed);
  }
  std::size_t buffers() const override { return network_.buffer_floats(); }
  std::vector<float> initial_buffers() const override;
  void next_parameters_belong_to(std::shared_ptr<const void> owner) const override {
    device_.announce(std::move(owner));
  }

  std::int64_t chunk_samples() const override { return chunk_samples_; }
  bool fuses_micro_batches() const override { return network_.fuses(); }
  std::int64_t samples_per_micro_batch() const override { return sampler_.samples_per_micro_batch(); }
  std::int64_t steps_per_epoch() const override { return sampler_.steps_per_epoch(); }
  std::int64_t samples_of(Rank worker) const override {
    const auto& shards = sampler_.options().shards;
    return shards.empty() ? 0 : std::ssize(shards[static_cast<std::size_t>(worker.value)]);
  }

  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override;
  // For networks of linear layers (forward.hpp) with classes. The result must not outlive the objective.
  std::unique_ptr<const GradientsApart> batched_gradients(
      const float* parameters, const float* buffers, std::span<const std::span<const MicroBatch>> lists) const override;
  bool has_batched_gradients() const override { return has_batched_gradients_; }

  std::int64_t evaluation_samples(Split split) const override { return dataset_->size().samples(split); }
  std::int64_t validation_samples() const override { return dataset_->size().validation; }
  EvaluationSums evaluate(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                          std::int64_t end) const override {
    return evaluate_ensemble({&parameters, 1}, {&buffers, 1}, split, begin, end);
  }
  EvaluationSums evaluate_samples(const float* parameters, const float* buffers, Split split,
                                  std::span<const std::uint32_t> samples) const override;
  EvaluationSums evaluate_ensemble(std::span<const float* const> parameters, std::span<const float* const> buffers,
                                   Split split, std::int64_t begin, std::int64_t end) const override;
  std::vector<double> derivative(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                                 std::int64_t end, std::span<const double> direction) const override;
  std::vector<float> batch_statistics(const float* parameters,
                                      std::span<const MicroBatch> micro_batches) const override;
  bool has_accuracy() const override { return dataset_->size().targets == 0; }

  const Network& network() const { return network_; }

 private:
  bool takes_texts() const { return network_.input().has_tokens(); }
  std::uint64_t seed() const { return sampler_.options().seed; }
  // The seed for LibTorch's operators in the forward pass of a micro-batch; nullopt if no operator draws random
  // numbers.
  std::optional<std::uint64_t> seed_of(const MicroBatch& micro_batch) const;
  // Batches in main memory. Numbers are views of `memory`, or of memory of this thread.
  SampleBatch training_batch(std::span<const MicroBatch> micro_batches, FlatVector& memory) const;
  SampleBatch evaluated_batch(Split split, std::span<const std::uint32_t> samples) const;
  EvaluationSums evaluate_together(std::span<const float* const> parameters, std::span<const float* const> buffers,
                                   Split split, std::span<const std::uint32_t> samples) const;

  Network network_;
  std::shared_ptr<const Dataset> dataset_;
  Sampler sampler_;
  std::int64_t chunk_samples_;
  double label_smoothing_;
  double mixup_;
  Device device_;
  bool has_batched_gradients_;
};

}  // namespace syncopate
