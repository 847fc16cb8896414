// Digests of files that may be large. What a file holds decides what is computed from it, but reading gigabytes at each
// start would cost more than many a run: a digest is kept with all that the system says about the file, and taken
// again where any of it differs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>

namespace syncopate {

// All that the system says about a file without reading it.
struct FileState {
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t changed_ns = 0;   // mtime, which anybody may set
  std::int64_t recorded_ns = 0;  // ctime, which nobody may
  bool operator==(const FileState&) const = default;
};

// Thread-safe, and safe beside other processes with the same file.
class DigestCache {
 public:
  // Kept in `file`, and in this process alone where that is empty. A file that cannot be read or written costs time
  // and nothing else. `margin`: how long before it was read a file must have changed last for its digest to be kept.
  // A later change within the same tick of the file system's clock leaves all times as they are. Of more than twice
  // `most_kept` digests in the file the newest `most_kept` stay: others are of data sets long gone.
  explicit DigestCache(std::filesystem::path file, std::chrono::nanoseconds margin = std::chrono::seconds(2),
                       std::size_t most_kept = 10'000);

  // 16 hexadecimal digits of what the file holds. Throws DataFault.
  std::string digest(const std::filesystem::path& file);

  // Files whose contents were read, rather than found here.
  int files_read() const { return files_read_; }

 private:
  struct Entry {
    std::string digest;
    FileState state;
  };
  using Entries = std::map<std::string, Entry>;  // by path

  static std::string line_of(const std::string& path, const Entry& entry);
  void read();
  void append(const std::string& path, const Entry& entry) const;
  void replace(const std::string& text) const;

  std::filesystem::path file_;
  std::chrono::nanoseconds margin_;
  std::size_t most_kept_;
  std::mutex mutex_;
  bool is_read_ = false;
  Entries entries_;
  int files_read_ = 0;
};

// The user's, in $XDG_CACHE_HOME/syncopate or ~/.cache/syncopate.
DigestCache& digest_cache();

}  // namespace syncopate
