// Labels of tokens in a NumPy array: one for each place of the array of tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "workers/files/npy_array.hpp"

namespace syncopate {

// Of y as x (n, length), int32 or int64, row by row: classes from 0, or ignored_label where nothing is asked for. What
// stands on padding, `padding` at a row's end, must be that; each row must ask for something. Throws DataFault, which
// names y's file, also for another shape.
std::vector<std::int32_t> token_labels_in(const std::filesystem::path& file, const NpyArray& y, const NpyArray& x,
                                          std::int32_t padding);

}  // namespace syncopate
