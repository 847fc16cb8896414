// The objective of a network on a data set of tokens, with LibTorch. For sources with LibTorch alone.
//
// Texts are evaluated together without padding, so that a micro-batch's result does not depend on the others that are
// evaluated with it. A module of the user's own may see padding, if that leaves its outputs the same. The loss of a
// micro-batch is the mean over what its texts are asked for. The mean of such means, which a step takes, is not the
// mean over all questions where micro-batches have unlike numbers. An evaluation sums over all questions.
#pragma once

#include <ATen/ATen.h>

#include <cassert>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "workers/data/dataset.hpp"
#include "workers/data/sampler.hpp"
#include "workers/models/network.hpp"
#include "workers/models/torch_objective.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

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

// Texts as LibTorch's kernels take them: all tokens of a batch one after another, without padding. Only attention,
// where tokens of a text meet, pads: in groups of texts of nearly one length.
struct SequenceBatch {
  // In the given order; sorted by length, groups are large. Without `pads` a group has texts of one length.
  explicit SequenceBatch(const std::vector<std::span<const std::int32_t>>& texts, bool pads = true);

  at::Tensor tokens;              // (t,) int64
  at::Tensor places;              // (t,) int64: from 0 in each text
  at::Tensor begins;              // (n,) int64: where each text begins
  std::vector<TextGroup> groups;  // one after another
  at::Tensor asked{};             // (questions,) int64: tokens whose outputs are asked for; undefined: none
};

struct AskedText;

class TextObjective : public NetworkObjective {
 public:
  // The network has no buffers.
  TextObjective(Network network, std::shared_ptr<const Dataset> dataset, const SamplerOptions& sampling,
                std::int64_t chunk_samples, double label_smoothing = 0)
      : NetworkObjective(std::move(network), std::move(dataset), sampling, chunk_samples, label_smoothing) {
    assert(network_.buffers().empty());
  }

  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override;

  EvaluationSums evaluate_samples(const float* parameters, const float*, Split split,
                                  std::span<const std::uint32_t> samples) const override {
    return evaluate_texts({&parameters, 1}, split, samples);
  }
  EvaluationSums evaluate_ensemble(std::span<const float* const> parameters, std::span<const float* const> buffers,
                                   Split split, std::int64_t begin, std::int64_t end) const override;

  std::vector<double> derivative(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                                 std::int64_t end, std::span<const double> direction) const override;

 private:
  EvaluationSums evaluate_texts(std::span<const float* const> parameters, Split split,
                                std::span<const std::uint32_t> samples) const;
  std::vector<AskedText> texts_of(std::span<const MicroBatch> micro_batches) const;
};

// A text that is asked, on one of its visits.
struct AskedText {
  std::uint32_t sample = 0;
  std::int64_t epoch = 0;
  std::int64_t micro_batch = 0;  // whose loss is the mean over all that its texts are asked for
  std::int32_t asked = 0;        // tokens from its first on that it may be asked for; 0: all
};

// Texts with what they are asked for, put together for one evaluation.
struct TextTargets {
  SequenceBatch texts;
  at::Tensor answers;                    // (questions,) int64: classes or tokens
  at::Tensor weights;                    // (questions,): 1 / those of the same micro-batch
  std::vector<std::uint32_t> samples{};  // (texts,), in the order in which they stand
  std::vector<std::int64_t> epochs{};    // by text, in that order
};

// The texts stand by length, the longest first. `seed`: of what is hidden. There may be no question at all.
TextTargets ask(const Dataset& dataset, Split split, std::vector<AskedText> texts, const TextTask& task,
                std::uint64_t seed);

}  // namespace syncopate
