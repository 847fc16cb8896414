#include "results/formats/npy.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <cstring>
#include <stdexcept>

namespace syncopate {
namespace {

static_assert(std::endian::native == std::endian::little, "the header says so");
constexpr std::string_view magic("\x93NUMPY\x01\x00", 8);
constexpr std::size_t before_header = magic.size() + 2;  // a 16-bit length
constexpr std::size_t alignment = 64;

}  // namespace

std::string npy(const std::vector<std::vector<float>>& vectors) {
  const std::size_t size = vectors.empty() ? 0 : vectors.front().size();
  const std::string shape =
      vectors.size() == 1 ? fmt::format("({},)", size) : fmt::format("({}, {})", vectors.size(), size);
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': {}, }}", shape);
  // Blanks and a line feed bring the data to a multiple of 64 bytes.
  header.append(alignment - 1 - (before_header + header.size()) % alignment, ' ');
  header += '\n';
  std::string bytes(magic);
  bytes += static_cast<char>(header.size() & 0xFF);
  bytes += static_cast<char>(header.size() >> 8);
  bytes += header;
  for (const std::vector<float>& vector : vectors) {
    if (vector.size() != size) throw std::invalid_argument("the rows of an array must have equal sizes");
    bytes.append(reinterpret_cast<const char*>(vector.data()), size * sizeof(float));
  }
  return bytes;
}

std::vector<float> floats_from_npy(std::string_view bytes) {
  if (bytes.size() < before_header || bytes.substr(0, magic.size()) != magic)
    throw std::runtime_error("not an array of NumPy's format 1.0");
  const auto byte = [&](std::size_t at) { return static_cast<std::size_t>(static_cast<unsigned char>(bytes[at])); };
  const std::size_t begin = before_header + byte(magic.size()) + 256 * byte(magic.size() + 1);
  if (bytes.size() < begin || bytes.substr(0, begin).find("'<f4'") == std::string_view::npos ||
      (bytes.size() - begin) % sizeof(float) != 0)
    throw std::runtime_error("not an array of float32");
  std::vector<float> floats((bytes.size() - begin) / sizeof(float));
  if (!floats.empty()) std::memcpy(floats.data(), bytes.data() + begin, floats.size() * sizeof(float));
  return floats;
}

}  // namespace syncopate
