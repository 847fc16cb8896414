// IDX files, the format of MNIST: bytes 0 0, element type, number of dimensions, each dimension as a
// big-endian 32-bit integer, then the elements in row-major order. Only unsigned bytes (type 8) here.
// Whether a file is gzip-compressed is told from its first bytes, not from its name.
// Source: http://yann.lecun.com/exdb/mnist/ (section on file formats).
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace syncopate {

struct IdxArray {
  std::vector<std::int64_t> dimensions;
  std::vector<std::uint8_t> values;  // product of the dimensions
};

// The dimensions, from the file's first bytes alone; exactly `rank` of them, each at least 1.
// Throws DataFault: file, what was found, what would be right.
std::vector<std::int64_t> read_idx_dimensions(const std::filesystem::path& file, int rank);

// The whole file. Also throws DataFault if it is shorter or longer than its dimensions say, or does
// not decompress.
IdxArray read_idx(const std::filesystem::path& file, int rank);

}  // namespace syncopate
