// Files: their content, compressed with gzip or not, and where they lie.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace syncopate {

// 16 hexadecimal digits.
std::string content_hash(std::string_view content);

// Data that cannot be used: the file or the sizes, what was found, and what would be right.
struct DataFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Why a path is no directory: "is a file", "is a link to x, which is not there", ...; empty if it is one.
std::string why_no_directory(const std::filesystem::path& path);

// The directory of a data set, the first that exists: `name` in the directory that the environment variable
// SYNCOPATE_DATA names, then `packaged` in share of /usr/local and /usr. Throws DataFault with `what_to_do` if there is
// none.
std::filesystem::path found_directory(const std::string& name, const std::string& packaged,
                                      const std::string& what_to_do);

// The directory for files that can be made again: syncopate in $XDG_CACHE_HOME or ~/.cache; empty without both. It need
// not exist.
std::filesystem::path users_cache();

// A file as it is stored. Throws std::system_error if it cannot be opened or read to its end, or has more than
// most_bytes.
std::string whole_file(const std::filesystem::path& file, std::uint64_t most_bytes);

// Bounds for files that Syncopate has written and reads again. Anything can stand in their place: a pipe, which would
// block for ever, a directory, or more bytes than there is memory.
// For files that are parsed; the summary of a million workers has about half of it.
inline constexpr std::uint64_t most_own_bytes = std::uint64_t{1} << 28;
// For files whose size is known to be right: those in files.json, once damage_of() has found nothing.
inline constexpr std::uint64_t any_size = std::numeric_limits<std::uint64_t>::max();

// An open regular file, with its size. Opening it never blocks.
class OwnFile {
 public:
  // Throws std::runtime_error, without the file's name.
  explicit OwnFile(const std::filesystem::path& path);
  ~OwnFile();
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;

  std::uint64_t size() const { return size_; }
  // The next bytes, fewer than asked for only at the end. Throws std::runtime_error.
  std::size_t read(char* out, std::size_t bytes);

 private:
  int number_;
  std::uint64_t size_ = 0;
};

// The whole content; nothing if there is no such file, or a link that leads nowhere. Throws std::runtime_error, with
// the file's name, if it is not a regular file, has more than `most_bytes`, or cannot be read.
std::optional<std::string> read_file(const std::filesystem::path& path, std::uint64_t most_bytes = most_own_bytes);

// A fault of a compressed file, without its name.
struct GzipFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A file as it was before compression, piece by piece. It can be several compressed members in a row (RFC 1952),
// followed by zeros; anything else after them is a fault, which other readers ignore. A file whose first two bytes are
// not gzip's passes unchanged.
class GzipStream {
 public:
  // `more` gives the file's next bytes, valid until its next call; none at the end.
  explicit GzipStream(std::function<std::string_view()> more);
  ~GzipStream();
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  // Returns the number of bytes: fewer than asked for only at the end. Throws GzipFault.
  std::size_t read(char* out, std::size_t bytes);

 private:
  bool refill();
  std::size_t inflate_some(char* out, std::size_t bytes);
  void begin_next_member();

  std::function<std::string_view()> more_;
  std::string_view input_{};  // not yet read
  bool is_compressed_ = false;
  bool is_at_end_ = false;  // of all members
  z_stream stream_{};
};

// Compressed by gzip, to the same bytes at any time on any machine. Throws std::runtime_error if zlib fails.
std::string gzip(std::string_view contents);

}  // namespace syncopate
