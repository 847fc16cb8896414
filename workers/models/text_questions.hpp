// Texts with what they are asked for, put together for one evaluation. For sources with LibTorch alone.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "workers/datasets/dataset.hpp"
#include "workers/models/sequence_batch.hpp"
#include "workers/models/text_task.hpp"

namespace syncopate {

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
