// Numbers in a NumPy array that samples have instead of classes.
#pragma once

#include <cstdint>
#include <filesystem>

#include "workers/files/npy_array.hpp"

namespace syncopate {

bool holds_targets(const NpyArray& y);  // by its type, float32

// How many numbers a sample has, of y (n,), which is 1, or (n, targets). Throws DataFault, which names the file, for
// another shape and for what is not finite.
std::int64_t targets_of(const std::filesystem::path& file, const NpyArray& y);

}  // namespace syncopate
