// Reading files, compressed with gzip or not, and finding directories.
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

// Returns 16 hexadecimal digits (XXH3 with 64 bits).
std::string content_hash(std::string_view content);

// Thrown for unusable data. The message names the file or the sizes, what was found, and what is required.
struct DataFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Why a path is not a directory: "is a file", "is a link to x, which is not there", ...; empty if it is one.
std::string why_no_directory(const std::filesystem::path& path);

// Returns the directory of a data set: the first that exists of $SYNCOPATE_DATA/`name`, /usr/local/share/`packaged` and
// /usr/share/`packaged`. Throws DataFault with `what_to_do` if none exists.
std::filesystem::path found_directory(const std::string& name, const std::string& packaged,
                                      const std::string& what_to_do);

// Returns the directory for caches: `syncopate` in $XDG_CACHE_HOME or ~/.cache. Empty if neither is known. The
// directory may not exist yet.
std::filesystem::path users_cache();

// Returns the bytes of a file as they are stored, without decompression. Throws std::system_error if the file cannot be
// opened or read to its end, or has more than most_bytes.
std::string whole_file(const std::filesystem::path& file, std::uint64_t most_bytes);

// The largest file of Syncopate's own that is read completely. The limit is needed because a file larger than the
// memory may have replaced it. The summary of a run with a million workers is about half as large.
inline constexpr std::uint64_t most_own_bytes = std::uint64_t{1} << 28;
// No limit. For files whose sizes damage_of() has already compared with files.json.
inline constexpr std::uint64_t any_size = std::numeric_limits<std::uint64_t>::max();

// An open regular file that Syncopate has written. Opening never blocks, even if a pipe has replaced the file.
class OwnFile {
 public:
  // Throws std::runtime_error without the file's name.
  explicit OwnFile(const std::filesystem::path& path);
  ~OwnFile();
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;

  std::uint64_t size() const { return size_; }
  // Reads the next bytes; fewer than requested only at the end of the file. Throws std::runtime_error.
  std::size_t read(char* out, std::size_t bytes);

 private:
  int number_;
  std::uint64_t size_ = 0;
};

// Returns the whole content, or nullopt if the file does not exist or is a dangling link. Throws std::runtime_error
// with the file's name if it is not a regular file, has more than `most_bytes`, or cannot be read.
std::optional<std::string> read_file(const std::filesystem::path& path, std::uint64_t most_bytes = most_own_bytes);

// Thrown if a compressed file is damaged or truncated. The message does not contain the file's name.
struct GzipFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Decompresses a file piece by piece. A file may contain several consecutive gzip members (RFC 1952), followed by
// zeros. Any other bytes after the last member are a fault, although other programs ignore them. A file that does not
// begin with gzip's two magic bytes is read unchanged.
class GzipStream {
 public:
  // `more` returns the file's next bytes, which are valid until `more` is called again; empty at the end of the file.
  explicit GzipStream(std::function<std::string_view()> more);
  ~GzipStream();
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  // Returns the number of bytes read; fewer than requested only at the end of the file. Throws GzipFault.
  std::size_t read(char* out, std::size_t bytes);

 private:
  bool refill();
  std::size_t inflate_some(char* out, std::size_t bytes);
  void begin_next_member();

  std::function<std::string_view()> more_;
  std::string_view input_{};  // bytes not yet consumed
  bool is_compressed_ = false;
  bool is_at_end_ = false;  // the last member has been read
  z_stream stream_{};
};

// Compresses with gzip. With one version of zlib the result depends only on the contents; it has no time stamp. Throws
// std::runtime_error if zlib fails.
std::string gzip(std::string_view contents);

}  // namespace syncopate
