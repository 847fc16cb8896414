// The objective of a network on a data set of tokens, with LibTorch. Only sources with LibTorch include it.
// Texts are evaluated together without padding, so a micro-batch's result does not depend on the other micro-batches
// that are evaluated with it. A user's own module may see padding if that does not change its outputs.
// The loss of a micro-batch is the mean over the questions about its texts. A step uses the mean of the micro-batches'
// means, which differs from the mean over all questions if micro-batches have different numbers of questions. An
// evaluation sums over all questions.
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

// Texts that attention processes together.
struct TextGroup {
  std::int64_t begin = 0;   // index in the batch's tokens
  std::int64_t tokens = 0;  // total of all texts
  std::int64_t texts = 0;
  std::int64_t longest = 0;
  std::vector<std::int64_t> sizes{};  // by text: its number of tokens
  // The following members are defined only if lengths differ.
  // (texts * longest,) int64: the group's token in each slot; an arbitrary token after a text's end.
  at::Tensor tokens_of_slots;
  at::Tensor slots_of_tokens;  // (tokens,) int64
  at::Tensor lengths;          // (texts,) int64
};

// Texts as LibTorch's kernels take them: all tokens of a batch one after another, without padding. Only attention, in
// which the tokens of a text interact, uses padding: it processes groups of texts of nearly equal length.
struct SequenceBatch {
  // Keeps the order of `texts`; sorted by length, they form large groups. Without `pads` a group's lengths are equal.
  explicit SequenceBatch(const std::vector<std::span<const std::int32_t>>& texts, bool pads = true);

  at::Tensor tokens;              // (t,) int64
  at::Tensor places;              // (t,) int64: position in the text, from 0
  at::Tensor begins;              // (n,) int64: index of each text's first token
  std::vector<TextGroup> groups;  // in the order of the texts
  at::Tensor asked{};             // (questions,) int64: tokens whose outputs are needed; undefined: none
};

struct AskedText;

class TextObjective : public NetworkObjective {
 public:
  // The network must have no buffers.
  TextObjective(Network network, std::shared_ptr<const Dataset> dataset, const SamplerOptions& sampling,
                std::int64_t chunk_samples, double label_smoothing = 0, const Arithmetic& arithmetic = {})
      : NetworkObjective(std::move(network), std::move(dataset), sampling, chunk_samples, label_smoothing, arithmetic) {
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

// One visit of a text, with the questions about it.
struct AskedText {
  std::uint32_t sample = 0;
  std::int64_t epoch = 0;
  std::int64_t micro_batch = 0;  // its loss is the mean over the questions about all its texts
  std::int32_t asked = 0;        // only the first `asked` tokens have questions; 0: all tokens
};

// Texts with their questions, assembled for one evaluation.
struct TextTargets {
  SequenceBatch texts;
  at::Tensor answers;                    // (questions,) int64: classes or tokens
  at::Tensor weights;                    // (questions,): 1 / number of questions in the same micro-batch
  std::vector<std::uint32_t> samples{};  // (texts,), in the order of `texts`
  std::vector<std::int64_t> epochs{};    // by text, in the same order
};

// Sorts the texts by length, the longest first. `seed`: for hidden tokens. There may be no questions at all.
TextTargets ask(const Dataset& dataset, Split split, std::vector<AskedText> texts, const TextTask& task,
                std::uint64_t seed);

}  // namespace syncopate
