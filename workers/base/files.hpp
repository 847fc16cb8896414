// What a file holds, compressed with gzip or not, piece by piece.
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

// What tells contents apart.
// 16 hexadecimal digits.
std::string content_hash(std::string_view content);

// What is wrong with files of data.
// Data that cannot be used: names the file or the sizes, what was found, and what would be right.
struct DataFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Why a path is no directory, where "Not a directory" alone would not help.
// "is a file", "is a link to x, which is not there", ...; empty if it is a directory.
std::string why_no_directory(const std::filesystem::path& path);

// Where a package puts the files of a data set.
// The first directory that exists: `name` in the directory that the environment variable SYNCOPATE_DATA names, then
// `packaged` in share of /usr/local and /usr. Throws DataFault, which says `what_to_do`, if there is none.
std::filesystem::path found_directory(const std::string& name, const std::string& packaged,
                                      const std::string& what_to_do);

// Where the user's programs keep what they can make again.
// syncopate in $XDG_CACHE_HOME or ~/.cache; empty where there is neither. It need not exist.
std::filesystem::path users_cache();

// A file as it is stored.
// Throws std::system_error, which says what the system does, where the file cannot be opened or read to its end, or has
// more than most_bytes.
std::string whole_file(const std::filesystem::path& file, std::uint64_t most_bytes);

// Files that Syncopate has written and reads again. Whoever may write in their folder may have put anything in their
// place: a pipe, which would be waited for for ever, a directory, or more bytes than there is memory.
// Of what is parsed: the summary of a million workers has about half as many.
inline constexpr std::uint64_t most_own_bytes = std::uint64_t{1} << 28;
// For files whose size is known to be right: those that files.json lists, once damage_of() has found nothing.
inline constexpr std::uint64_t any_size = std::numeric_limits<std::uint64_t>::max();

// An open regular file, with its size. Opening it waits for nothing.
class OwnFile {
 public:
  // Throws std::runtime_error, without the file's name: why it is not there, or is none.
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

// The whole content; nothing where there is no file of that name, or a link that leads nowhere. Throws
// std::runtime_error, which names the file, where it is not a regular one, has more than `most_bytes`, or cannot be
// read.
std::optional<std::string> read_file(const std::filesystem::path& path, std::uint64_t most_bytes = most_own_bytes);

// What is wrong with a compressed file, without its name.
struct GzipFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A file may be several compressed ones in a row, as RFC 1952 has it, and then zeros up to its end; anything else after
// them is a fault, where other readers pass over it. A file whose first two bytes are not gzip's is not compressed, and
// passes unchanged.
class GzipStream {
 public:
  // `more` gives the file's next bytes, which stay until it is called again; none at the end.
  explicit GzipStream(std::function<std::string_view()> more);
  ~GzipStream();
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  // Bytes read: fewer than asked for only at the end. Throws GzipFault.
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

// A file's contents compressed as gzip does, the same bytes at any time on any machine.
// Throws std::runtime_error if zlib cannot.
std::string gzip(std::string_view contents);

}  // namespace syncopate
