// Texts as LibTorch's kernels take them: all tokens of a batch one after another, without any padding, so that a text's
// result does not depend on those beside it. For sources with LibTorch alone.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

namespace syncopate {

struct SequenceBatch {
  explicit SequenceBatch(const std::vector<std::span<const std::int32_t>>& sequences);

  at::Tensor tokens;  // (t,) int64
  at::Tensor begins;  // (n,) int64: where each sequence begins
};

}  // namespace syncopate
