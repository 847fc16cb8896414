// A recording as bytes (CBOR), to move it from the process that recorded to the one that writes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "results/rows/recording.hpp"

namespace syncopate {

std::vector<std::uint8_t> to_bytes(const Recording& recording);

// Throws std::runtime_error if the bytes are not those of a recording.
Recording recording_from_bytes(std::span<const std::uint8_t> bytes);

}  // namespace syncopate
