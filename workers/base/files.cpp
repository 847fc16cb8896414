#include "workers/files/gzip_stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

namespace syncopate {
namespace {

constexpr char first_magic = '\x1f', second_magic = '\x8b';

}  // namespace

GzipStream::GzipStream(std::function<std::string_view()> more) : more_(std::move(more)) {
  constexpr int gzip = 16 + MAX_WBITS;
  input_ = more_();
  is_compressed_ = input_.size() >= 2 && input_[0] == first_magic && input_[1] == second_magic;
  if (is_compressed_ && inflateInit2(&stream_, gzip) != Z_OK) throw std::bad_alloc();
}

GzipStream::~GzipStream() {
  if (is_compressed_) inflateEnd(&stream_);
}

bool GzipStream::refill() {
  if (input_.empty()) input_ = more_();
  return !input_.empty();
}

std::size_t GzipStream::read(char* out, std::size_t bytes) {
  std::size_t done = 0;
  while (done < bytes && !is_at_end_) {
    if (is_compressed_) {
      done += inflate_some(out + done, bytes - done);
    } else if (refill()) {
      const std::size_t part = std::min(bytes - done, input_.size());
      std::memcpy(out + done, input_.data(), part);
      input_.remove_prefix(part);
      done += part;
    } else {
      is_at_end_ = true;
    }
  }
  return done;
}

std::size_t GzipStream::inflate_some(char* out, std::size_t bytes) {
  constexpr std::size_t most = std::numeric_limits<uInt>::max();  // zlib counts in 32 bits
  if (!refill()) throw GzipFault("ends in the middle of its compressed data; the file is truncated");
  const std::size_t given = std::min(input_.size(), most), room = std::min(bytes, most);
  stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input_.data()));  // not written to
  stream_.avail_in = static_cast<uInt>(given);
  stream_.next_out = reinterpret_cast<Bytef*>(out);
  stream_.avail_out = static_cast<uInt>(room);
  const int status = inflate(&stream_, Z_NO_FLUSH);
  input_.remove_prefix(given - stream_.avail_in);
  if (status == Z_STREAM_END)
    begin_next_member();
  else if (status != Z_OK && status != Z_BUF_ERROR)
    throw GzipFault(fmt::format("does not decompress: {}", stream_.msg ? stream_.msg : "damaged data"));
  return room - stream_.avail_out;
}

// Blocks of a tape or a disk are filled up with zeros. The two bytes may lie in different pieces of the file.
void GzipStream::begin_next_member() {
  bool is_padded = false;
  while (refill() && input_.front() == '\0') {
    is_padded = true;
    input_.remove_prefix(std::min(input_.find_first_not_of('\0'), input_.size()));
  }
  is_at_end_ = input_.empty();
  if (is_at_end_) return;
  if (is_padded || input_.front() != first_magic)
    throw GzipFault("has bytes after its compressed data that are not gzip");
  inflateReset(&stream_);
}

}  // namespace syncopate
