#include "workers/files/whole_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>
#include <vector>

namespace syncopate {

// A stream of the standard library takes an error of reading for the end of what it copies.
std::string whole_file(const std::filesystem::path& file, std::uint64_t most_bytes) {
  struct Close {
    void operator()(std::FILE* open) const { std::fclose(open); }
  };
  const std::unique_ptr<std::FILE, Close> open(std::fopen(file.c_str(), "rb"));
  if (!open) throw std::system_error(errno, std::generic_category());
  std::string content;
  std::error_code unknown;
  const std::uintmax_t bytes = std::filesystem::file_size(file, unknown);
  if (!unknown) content.reserve(std::min<std::uintmax_t>(bytes, most_bytes));
  std::vector<char> piece(1 << 18);
  while (const std::size_t got = std::fread(piece.data(), 1, piece.size(), open.get())) {
    if (got > most_bytes - content.size()) throw std::system_error(EFBIG, std::generic_category());
    content.append(piece.data(), got);
  }
  if (std::ferror(open.get())) throw std::system_error(errno, std::generic_category());
  return content;
}

}  // namespace syncopate
