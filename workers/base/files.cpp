#define XXH_INLINE_ALL

#include "workers/base/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>
#include <vector>

namespace syncopate {

namespace fs = std::filesystem;

namespace {

struct NotThere : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void fail(int error) {
  if (error == ENOENT || error == ENOTDIR) throw NotThere("is not there");
  if (error == ENXIO || error == ENODEV) throw std::runtime_error("is not a regular file");  // for example a socket
  throw std::runtime_error(fmt::format("cannot be read: {}", std::strerror(error)));
}

constexpr char first_magic = '\x1f', second_magic = '\x8b';
constexpr int gzip_window_bits = MAX_WBITS + 16;  // 16: with gzip's header

void check(int status, const char* what) {
  if (status != Z_OK && status != Z_STREAM_END)
    throw std::runtime_error(fmt::format("compression failed: zlib's {} returned {}", what, status));
}

}  // namespace

std::string content_hash(std::string_view content) {
  return fmt::format("{:016x}", XXH3_64bits(content.data(), content.size()));
}

std::string why_no_directory(const fs::path& path) {
  std::error_code error, no_link;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return {};
  if (fs::exists(status)) return "is a file";
  const fs::path target = fs::read_symlink(path, no_link);
  if (error == std::errc::too_many_symbolic_link_levels) return "is reached by links that lead back to themselves";
  if (!no_link) return fmt::format("is a link to {}, which is not there", target.string());
  if (status.type() == fs::file_type::not_found) return "no such directory";
  return fmt::format("cannot be reached: {}", error.message());
}

fs::path found_directory(const std::string& name, const std::string& packaged, const std::string& what_to_do) {
  std::vector<fs::path> places;
  if (const char* data = std::getenv("SYNCOPATE_DATA")) places.push_back(fs::path(data) / name);
  for (const char* share : {"/usr/local/share", "/usr/share"}) places.push_back(fs::path(share) / packaged);
  std::string missing;
  for (const auto& place : places) {
    if (fs::is_directory(place)) return place;
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", place.string());
  }
  throw DataFault(fmt::format("none of these directories exists: {}; {}", missing, what_to_do));
}

// The XDG base directory specification says to ignore relative paths.
fs::path users_cache() {
  const auto absolute = [](const char* name) {
    const char* value = std::getenv(name);
    return value && *value == '/' ? fs::path(value) : fs::path();
  };
  fs::path caches = absolute("XDG_CACHE_HOME");
  if (caches.empty() && !absolute("HOME").empty()) caches = absolute("HOME") / ".cache";
  return caches.empty() ? caches : caches / "syncopate";
}

// Does not use std::ifstream, which treats a read error as the end of the file.
std::string whole_file(const fs::path& file, std::uint64_t most_bytes) {
  struct Close {
    void operator()(std::FILE* open) const { std::fclose(open); }
  };
  const std::unique_ptr<std::FILE, Close> open(std::fopen(file.c_str(), "rb"));
  if (!open) throw std::system_error(errno, std::generic_category());
  std::string content;
  std::error_code unknown;
  const std::uintmax_t bytes = fs::file_size(file, unknown);
  if (!unknown) content.reserve(std::min<std::uintmax_t>(bytes, most_bytes));
  std::vector<char> piece(1 << 18);
  while (const std::size_t got = std::fread(piece.data(), 1, piece.size(), open.get())) {
    if (got > most_bytes - content.size()) throw std::system_error(EFBIG, std::generic_category());
    content.append(piece.data(), got);
  }
  if (std::ferror(open.get())) throw std::system_error(errno, std::generic_category());
  return content;
}

OwnFile::OwnFile(const fs::path& path)
    : number_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {  // opening a pipe does not wait
  if (number_ < 0) fail(errno);
  struct stat found {};
  const int error = fstat(number_, &found) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(found.st_mode)) {
    size_ = static_cast<std::uint64_t>(found.st_size);
    return;
  }
  close(number_);
  if (error != 0) fail(error);
  throw std::runtime_error(S_ISDIR(found.st_mode) ? "is a directory" : "is not a regular file");
}

OwnFile::~OwnFile() { close(number_); }

std::size_t OwnFile::read(char* out, std::size_t bytes) {
  std::size_t got = 0;
  while (got < bytes) {
    const auto now = ::read(number_, out + got, bytes - got);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) fail(errno);
    if (now == 0) break;
    got += static_cast<std::size_t>(now);
  }
  return got;
}

std::optional<std::string> read_file(const fs::path& path, std::uint64_t most_bytes) {
  try {
    OwnFile file(path);
    const auto too_large = [&](std::uint64_t bytes) {
      return std::runtime_error(fmt::format("has {} bytes; must have at most {}", bytes, most_bytes));
    };
    if (file.size() > most_bytes) throw too_large(file.size());
    constexpr std::size_t piece = 1 << 16;
    std::string text;
    for (std::size_t room = file.size() + 1;; room = piece) {  // one byte more than the size, to notice growth
      const std::size_t before = text.size();
      text.resize(before + room);
      const std::size_t got = file.read(text.data() + before, room);
      text.resize(before + got);
      if (text.size() > most_bytes) throw too_large(text.size());
      if (got < room) return text;
    }
  } catch (const NotThere&) {
    return {};
  } catch (const std::runtime_error& problem) {
    throw std::runtime_error(fmt::format("{}: {}", path.string(), problem.what()));
  }
}

GzipStream::GzipStream(std::function<std::string_view()> more) : more_(std::move(more)) {
  input_ = more_();
  is_compressed_ = input_.size() >= 2 && input_[0] == first_magic && input_[1] == second_magic;
  if (is_compressed_ && inflateInit2(&stream_, gzip_window_bits) != Z_OK) throw std::bad_alloc();
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

// Skips zeros, which pad blocks of a tape or a disk. Checks only the first magic byte, because the second one may be in
// the next piece of the file.
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

std::string gzip(std::string_view contents) {
  constexpr int default_memory = 8;
  z_stream stream{};
  check(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, gzip_window_bits, default_memory, Z_DEFAULT_STRATEGY),
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
