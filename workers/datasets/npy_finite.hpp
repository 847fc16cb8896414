// Numbers that are not finite would make every model so after its first step, whatever is trained.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "workers/files/npy_array.hpp"

namespace syncopate {

// Of an array of float32, `per_sample` of them a sample. Throws DataFault with the first that is not finite: "feature 2
// of sample 7 is nan". What a file holds is looked at once by each process.
void check_finite(const std::filesystem::path& file, const NpyArray& array, std::int64_t per_sample,
                  std::string_view what);

}  // namespace syncopate
