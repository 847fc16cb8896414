#include "workers/models/sequence_batch.hpp"

#include <cstddef>

namespace syncopate {

SequenceBatch::SequenceBatch(const std::vector<std::span<const std::int32_t>>& sequences) {
  std::size_t count = 0;
  for (const auto& sequence : sequences) count += sequence.size();
  tokens = at::empty({static_cast<std::int64_t>(count)}, at::kLong);
  begins = at::empty({std::ssize(sequences)}, at::kLong);
  std::int64_t* const token = tokens.data_ptr<std::int64_t>();
  std::int64_t* begin = begins.data_ptr<std::int64_t>();
  std::int64_t at = 0;
  for (const auto& sequence : sequences) {
    *begin++ = at;
    for (const std::int32_t number : sequence) token[at++] = number;
  }
}

}  // namespace syncopate
