// Files that Syncopate has written and reads again. Whoever may write in their folder may have put anything in their
// place: a pipe, which would be waited for for ever, a directory, or more bytes than there is memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>

namespace syncopate {

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

}  // namespace syncopate
