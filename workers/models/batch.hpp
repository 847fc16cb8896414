// Batches of samples as a network's inputs, and the labels of its loss. Only sources with LibTorch include this file.
// Texts are evaluated together without padding, so a micro-batch's result does not depend on the other micro-batches
// that are evaluated with it. A user's own module may see padding if that does not change its outputs.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "workers/data/dataset.hpp"
#include "workers/models/network.hpp"
#include "workers/training/flat_arithmetic.hpp"
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
  at::Tensor tokens_of_slots{};
  at::Tensor slots_of_tokens{};  // (tokens,) int64
  at::Tensor lengths{};          // (texts,) int64
};

// Texts as inputs of LibTorch's kernels: all tokens of a batch one after another, without padding. Only attention, in
// which the tokens of a text interact, uses padding: it processes groups of texts of nearly equal length.
struct SequenceBatch {
  // Keeps the order of `texts`; texts that are sorted by length form large groups. Without `pads`, all texts of a group
  // have equal lengths.
  explicit SequenceBatch(const std::vector<std::span<const std::int32_t>>& texts, bool pads = true);

  at::Tensor tokens;              // (t,) int64
  at::Tensor places;              // (t,) int64: position in the text, from 0
  at::Tensor begins;              // (n,) int64: index of each text's first token
  std::vector<TextGroup> groups;  // in the order of the texts
  at::Tensor asked{};             // (labels,) int64: tokens whose outputs are needed; undefined: none
};

using NetworkInputs = std::variant<at::Tensor, SequenceBatch>;  // numbers (n, channels, height, width), or texts

// For samples that are mixed with partners (forward.hpp): the labels and shares of the partners, both (n,).
struct MixedLabels {
  at::Tensor labels;
  at::Tensor shares;
};

struct SampleBatch {
  NetworkInputs inputs;
  at::Tensor answers;                    // (labels,) int64: the classes, one per sample, or tokens to predict
  at::Tensor targets{};                  // (n, targets): numbers to learn instead of classes; undefined: none
  std::optional<MixedLabels> mixed{};    // for classes
  at::Tensor weights{};                  // (labels,), for texts: 1 / number of labels in the same micro-batch
  std::vector<std::uint32_t> samples{};  // (n,), in the order of the inputs
  std::vector<std::int64_t> epochs{};    // by sample; empty: the samples are not those of a gradient

  // Valid as long as the batch.
  Visits visits(std::uint64_t seed) const { return {.seed = seed, .samples = samples, .epochs = epochs}; }
};

// Samples that are numbers. The inputs are a view of `memory`, which is replaced unless it has the right size. With
// epochs, the samples are the training samples of a gradient.
SampleBatch gathered(const Dataset& dataset, Split split, std::uint64_t seed, std::vector<std::uint32_t> samples,
                     std::vector<std::int64_t> epochs, FlatVector& memory);

// One visit of a text, and which of its tokens the model must predict.
struct AskedText {
  std::uint32_t sample = 0;
  std::int64_t epoch = 0;
  std::int64_t micro_batch = 0;  // its loss is the mean over the labels of all its texts
  std::int32_t asked = 0;        // only labels of the first `asked` tokens are used; 0: all tokens
};

// Sorts the texts by length, the longest first. `seed`: selects the hidden tokens. The batch may have no labels at all.
SampleBatch ask(const Dataset& dataset, Split split, std::vector<AskedText> texts, const TextTask& task,
                std::uint64_t seed);

}  // namespace syncopate
