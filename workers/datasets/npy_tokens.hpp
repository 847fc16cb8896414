// Sequences of tokens in a NumPy array, one a row.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "workers/datasets/token_sequences.hpp"
#include "workers/files/npy_array.hpp"

namespace syncopate {

bool holds_tokens(const NpyArray& x);  // by its type, int32 or int64

// Labels of sequences, (n,), or, where there are any, of their tokens, (n * length).
struct RowLabels {
  const std::vector<std::int64_t>& of_rows;
  const std::vector<std::int32_t>& of_tokens;
};

// Of x (n, length); what is `padding` at a row's end is cut off. Throws DataFault, which names the file, for rows of
// padding alone and for elements that are no tokens.
TokenSequences read_rows(const std::filesystem::path& file, const NpyArray& x, const RowLabels& labels,
                         std::int32_t padding);

}  // namespace syncopate
