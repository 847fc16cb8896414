#include "workers/datasets/idx.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "workers/files/data_fault.hpp"
#include "workers/files/gzip_stream.hpp"
#include "workers/process/interrupt.hpp"

namespace syncopate {
namespace {

constexpr int unsigned_byte = 0x08;
constexpr std::int64_t largest_bytes = std::int64_t{1} << 34;  // beyond it a header is damaged, not a data set large

[[noreturn]] void fail(const std::filesystem::path& file, std::string_view message) {
  throw DataFault(fmt::format("{}: {}", file.string(), message));
}

std::string_view name_of_type(int type) {
  switch (type) {
    case 0x08:
      return "uint8";
    case 0x09:
      return "int8";
    case 0x0b:
      return "int16";
    case 0x0c:
      return "int32";
    case 0x0d:
      return "float32";
    case 0x0e:
      return "float64";
    default:
      return "none of the format's";
  }
}

// What an array of this many dimensions holds in an MNIST-style directory.
std::string kind(int rank) {
  if (rank == 1) return "labels (1 dimension)";
  if (rank == 3) return "images (3 dimensions)";
  return fmt::format("an array of {} dimensions", rank);
}

std::string product(const std::vector<std::int64_t>& dimensions) {
  std::string text;
  for (const auto dimension : dimensions) text += (text.empty() ? "" : " x ") + std::to_string(dimension);
  return text;
}

class Stream {
 public:
  explicit Stream(const std::filesystem::path& file) : file_(file), buffer_(1 << 17) {
    std::error_code ignored;
    if (std::filesystem::is_directory(file, ignored)) fail(file, "is a directory; must be an IDX file");
    in_.open(file, std::ios::binary);
    if (!in_) fail(file, fmt::format("cannot be opened: {}", std::strerror(errno)));
    stream_.emplace([this] { return next_piece(); });
  }

  // Bytes read: fewer than asked for only at the end of the file.
  std::int64_t read(std::uint8_t* out, std::int64_t bytes) {
    try {
      return static_cast<std::int64_t>(stream_->read(reinterpret_cast<char*>(out), static_cast<std::size_t>(bytes)));
    } catch (const GzipFault& problem) {
      fail(file_, problem.what());
    }
  }

 private:
  std::string_view next_piece() {
    in_.read(buffer_.data(), std::ssize(buffer_));
    if (in_.bad()) fail(file_, fmt::format("cannot be read: {}", std::strerror(errno)));
    return {buffer_.data(), static_cast<std::size_t>(in_.gcount())};
  }

  std::filesystem::path file_;
  std::ifstream in_;
  std::vector<char> buffer_;
  std::optional<GzipStream> stream_;
};

std::vector<std::int64_t> read_dimensions(Stream& stream, const std::filesystem::path& file, int rank) {
  std::array<std::uint8_t, 4> magic{};
  if (const auto got = stream.read(magic.data(), 4); got < 4)
    fail(file, fmt::format("has {} bytes; an IDX file begins with 4 bytes of type and 4 per dimension", got));
  if (magic[0] != 0 || magic[1] != 0)
    fail(file, fmt::format("begins with bytes {:02x} {:02x}; an IDX file begins with 00 00", magic[0], magic[1]));
  if (magic[2] != unsigned_byte)
    fail(file, fmt::format("holds elements of type 0x{:02x} ({}); must be 0x08 (uint8); numbers of other types can be "
                           "arrays of NumPy's, dataset = \"npy\"",
                           magic[2], name_of_type(magic[2])));
  if (magic[3] != rank) fail(file, fmt::format("holds {}; must hold {}", kind(magic[3]), kind(rank)));

  std::vector<std::int64_t> dimensions;
  std::int64_t bytes = 1;
  for (int axis = 0; axis < rank; ++axis) {
    std::array<std::uint8_t, 4> big_endian{};
    if (stream.read(big_endian.data(), 4) < 4)
      fail(file, fmt::format("ends within its header, at dimension {} of {}", axis + 1, rank));
    std::int64_t dimension = 0;
    for (const auto byte : big_endian) dimension = dimension << 8 | byte;
    if (dimension == 0) fail(file, fmt::format("has dimension {} = 0; must be at least 1", axis + 1));
    dimensions.push_back(dimension);
    if (dimension > largest_bytes / bytes)
      fail(file, fmt::format("declares dimensions {}; too large for a data set", product(dimensions)));
    bytes *= dimension;
  }
  return dimensions;
}

}  // namespace

std::vector<std::int64_t> read_idx_dimensions(const std::filesystem::path& file, int rank) {
  Stream stream(file);
  return read_dimensions(stream, file, rank);
}

IdxArray read_idx(const std::filesystem::path& file, int rank) {
  Stream stream(file);
  IdxArray array{.dimensions = read_dimensions(stream, file, rank), .values = {}};
  std::int64_t expected = 1;
  for (const auto dimension : array.dimensions) expected *= dimension;
  const auto declared = fmt::format("{} = {} elements", product(array.dimensions), expected);

  // Read piece by piece, so that a damaged header cannot ask for memory that the file never fills.
  constexpr std::int64_t piece = 1 << 24;
  while (std::ssize(array.values) < expected) {
    throw_if_interrupted();
    const auto done = std::ssize(array.values);
    const auto wanted = std::min(piece, expected - done);
    array.values.resize(static_cast<std::size_t>(done + wanted));
    if (const auto got = stream.read(array.values.data() + done, wanted); got < wanted)
      fail(file,
           fmt::format("ends after {} elements; its header declares {}; the file is truncated", done + got, declared));
  }
  std::uint8_t extra = 0;
  if (stream.read(&extra, 1) != 0)
    fail(file, fmt::format("goes on after its last element; its header declares {}", declared));
  return array;
}

}  // namespace syncopate
