// The text of a table in a file, plain or compressed with gzip.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "workers/files/gzip_stream.hpp"

namespace syncopate {

// What is wrong with a file, and where: "file:line: what", each fault one line.
struct FileFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr std::uint64_t most_text_bytes = 4'000'000'000;

// A file's content as it is stored. Throws FileFault, also where there is more than most_text_bytes.
std::string file_content(const std::filesystem::path& file);

// The table that a file's content is, piece by piece, so that it is never in memory as a whole.
class TableText {
 public:
  // `content`, compressed or not, outlives the object; faults name `file`.
  TableText(std::string_view content, std::string file, std::uint64_t most_bytes = most_text_bytes);
  TableText(const TableText&) = delete;
  TableText& operator=(const TableText&) = delete;

  // The next bytes, which stay until it is called again; none at the end. Throws FileFault for a damaged file, and
  // where the table has more than most_bytes, or unpacks to more than a hundred times what it is compressed to.
  std::string_view next();

 private:
  std::string_view content_;
  std::string file_;
  std::uint64_t most_bytes_;
  std::size_t taken_ = 0;       // of the content
  std::uint64_t unpacked_ = 0;  // bytes
  std::vector<char> piece_;
  GzipStream stream_;
};

}  // namespace syncopate
