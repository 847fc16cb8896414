// The objective of a network on a data set of tokens, with LibTorch's kernels and automatic differentiation. LibTorch
// itself stays out of this header.
//
// Texts are evaluated together without any padding (sequence_batch.hpp), so that what a micro-batch gives does not
// depend on the others that are evaluated with it. A module of the user's own may see padding, if that changes nothing
// of what it gives. The loss of a micro-batch is the mean over what its texts are asked
// for. Means of micro-batches are then averaged as of any objective: where some are asked for more than others, that is
// not the mean over all that is asked for. The sums of an evaluation are over that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "workers/datasets/dataset.hpp"
#include "workers/datasets/sampler.hpp"
#include "workers/models/network.hpp"
#include "workers/training/objective.hpp"
#include "workers/training/sample_weights.hpp"

namespace syncopate {

struct AskedText;

class TextObjective : public Objective, public DividedData {
 public:
  // The arguments are TorchObjective's; the network has no buffers.
  TextObjective(Network network, std::shared_ptr<const Dataset> dataset, const SamplerOptions& sampling,
                std::int64_t chunk_samples, double label_smoothing = 0);

  std::size_t parameters() const override { return network_.parameter_floats(); }
  std::size_t weights() const override { return network_.weight_floats(); }
  std::vector<ParameterTensor> tensors() const override { return network_.tensors(); }
  std::vector<float> initial_parameters(std::uint64_t seed) const override;

  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override;

  std::int64_t chunk_samples() const override { return chunk_samples_; }
  bool fuses_micro_batches() const override { return network_.fuses(); }
  std::int64_t samples_per_micro_batch() const override { return sampler_.samples_per_micro_batch(); }
  std::int64_t steps_per_epoch() const override { return sampler_.steps_per_epoch(); }
  std::int64_t samples_of(Rank worker) const override { return samples_in(sampler_.options().shards, worker); }

  std::int64_t evaluation_samples(Split split) const override { return dataset_->size().samples(split); }
  std::int64_t validation_samples() const override { return dataset_->size().validation; }
  EvaluationSums evaluate(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                          std::int64_t end) const override;
  EvaluationSums evaluate_samples(const float* parameters, const float* buffers, Split split,
                                  std::span<const std::uint32_t> samples) const override;
  EvaluationSums evaluate_ensemble(std::span<const float* const> parameters, std::span<const float* const> buffers,
                                   Split split, std::int64_t begin, std::int64_t end) const override;

  std::vector<double> derivative(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                                 std::int64_t end, std::span<const double> direction) const override;

  const Network& network() const { return network_; }

 private:
  EvaluationSums evaluate_texts(std::span<const float* const> parameters, Split split,
                                std::span<const std::uint32_t> samples) const;
  std::uint64_t seed() const { return sampler_.options().seed; }
  // Of what LibTorch's operators draw in the forward pass of a micro-batch, where they do.
  std::optional<std::uint64_t> seed_of_draws(const MicroBatch& micro_batch) const;
  std::vector<AskedText> texts_of(std::span<const MicroBatch> micro_batches) const;

  Network network_;
  std::shared_ptr<const Dataset> dataset_;
  Sampler sampler_;
  std::int64_t chunk_samples_;
  double label_smoothing_;
};

}  // namespace syncopate
