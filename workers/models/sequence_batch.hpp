// Texts as LibTorch's kernels take them: all tokens of a batch one after another, without padding, so that a text's
// result does not depend on those beside it. Only attention, where tokens of a text meet, pads: in groups of texts of
// nearly one length. For sources with LibTorch alone.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

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

}  // namespace syncopate
