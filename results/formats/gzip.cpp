#include "results/formats/gzip.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>

namespace syncopate {
namespace {

void check(int status, const char* what) {
  if (status != Z_OK && status != Z_STREAM_END)
    throw std::runtime_error(fmt::format("compressing failed: {} gives {}", what, status));
}

}  // namespace

std::string gzip(std::string_view contents) {
  constexpr int window_bits_with_gzip_header = 15 + 16;
  constexpr int default_memory = 8;
  z_stream stream{};
  check(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window_bits_with_gzip_header, default_memory,
                     Z_DEFAULT_STRATEGY),
        "deflateInit2");
  std::string compressed;
  std::array<char, 1 << 16> block;
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    // zlib counts in 32 bits.
    const auto part = std::min<std::size_t>(contents.size(), std::numeric_limits<uInt>::max());
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(contents.data()));  // not written to
    stream.avail_in = static_cast<uInt>(part);
    stream.next_out = reinterpret_cast<Bytef*>(block.data());
    stream.avail_out = block.size();
    status = deflate(&stream, part == contents.size() ? Z_FINISH : Z_NO_FLUSH);
    contents.remove_prefix(part - stream.avail_in);
    compressed.append(block.data(), block.size() - stream.avail_out);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) break;
  }
  deflateEnd(&stream);
  check(status, "deflate");
  return compressed;
}

}  // namespace syncopate
