// Sizes of memory as users write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace syncopate {

// Bytes of "8GiB", "0.5 GiB", "500MB" or "1000000", in letters of either case: K, M, G, T and KB, ... are powers of
// 1000, KiB (or Ki), ... of 1024. None for what is no such size, is less than a byte, or more than a number holds.
std::optional<std::int64_t> memory_size(std::string_view text);

}  // namespace syncopate
