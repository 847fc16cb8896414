// The objective of a network on a data set of tokens, with LibTorch's kernels and automatic differentiation. LibTorch
// itself stays out of this header.
//
// Texts are evaluated together without any padding, so that what a micro-batch gives does not
// depend on the others that are evaluated with it. A module of the user's own may see padding, if that changes nothing
// of what it gives. The loss of a micro-batch is the mean over what its texts are asked
// for. Means of micro-batches are then averaged as of any objective: where some are asked for more than others, that is
// not the mean over all that is asked for. The sums of an evaluation are over that.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "workers/data/dataset.hpp"
#include "workers/data/sampler.hpp"
#include "workers/models/network.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// Texts as LibTorch's kernels take them: all tokens of a batch one after another, without padding, so that a text's
// result does not depend on those beside it. Only attention, where tokens of a text meet, pads: in groups of texts of
// nearly one length. For sources with LibTorch alone.
// Texts that attention takes together.
struct TextGroup {
  std::int64_t begin = 0;   // in the batch's tokens
  std::int64_t tokens = 0;  // of all of them
  std::int64_t texts = 0;
  std::int64_t longest = 0;
  // Where lengths differ; else undefined.
  at::Tensor tokens_of_slots;  // (texts * longest,) int64: which of the group's tokens stands there; any behind an end
  at::Tensor slots_of_tokens;  // (tokens,) int64
  at::Tensor lengths;          // (texts,) int64
};

struct SequenceBatch {
  // In the order in which they are given; best by length, which makes groups large. `pads`: false: groups are of texts
  // of one length.
  explicit SequenceBatch(const std::vector<std::span<const std::int32_t>>& texts, bool pads = true);

  at::Tensor tokens;              // (t,) int64
  at::Tensor places;              // (t,) int64: from 0 in each text
  at::Tensor begins;              // (n,) int64: where each text begins
  std::vector<TextGroup> groups;  // one after another
  at::Tensor asked{};             // (questions,) int64: tokens whose outputs are asked for; undefined: none
};

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

// Texts with what they are asked for, put together for one evaluation. For sources with LibTorch alone.
// A text that is asked, on one of its visits.
struct AskedText {
  std::uint32_t sample = 0;
  std::int64_t epoch = 0;
  std::int64_t micro_batch = 0;  // whose loss is the mean over all that its texts are asked for
  std::int32_t asked = 0;        // tokens from its first on that it may be asked for; 0: all
};

struct TextQuestions {
  SequenceBatch texts;
  at::Tensor answers;                  // (questions,) int64: classes or tokens
  at::Tensor weights;                  // (questions,): 1 / those of the same micro-batch
  std::vector<std::uint32_t> samples;  // (texts,), in the order in which they stand
  std::vector<std::int64_t> epochs;    // likewise
};

// The texts stand by length, the longest first. `seed`: of what is hidden. There may be no question at all.
TextQuestions ask(const Dataset& dataset, Split split, std::vector<AskedText> texts, const TextTask& task,
                  std::uint64_t seed);

}  // namespace syncopate
