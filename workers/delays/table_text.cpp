#include "workers/delays/table_text.hpp"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "workers/files/whole_file.hpp"
#include "workers/process/interrupt.hpp"

namespace syncopate {

std::string file_content(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) throw FileFault(fmt::format("{}: is a directory", file.string()));
  const std::uintmax_t bytes = std::filesystem::file_size(file, ignored);
  if (!ignored && bytes > most_text_bytes)
    throw FileFault(fmt::format("{}: has {} bytes; must be at most {}", file.string(), bytes, most_text_bytes));
  try {
    return whole_file(file, most_text_bytes);
  } catch (const std::system_error& problem) {
    throw FileFault(fmt::format("{}: cannot be read: {}", file.string(), problem.code().message()));
  }
}

TableText::TableText(std::string_view content, std::string file, std::uint64_t most_bytes)
    : content_(content), file_(std::move(file)), most_bytes_(most_bytes), piece_(1 << 18), stream_([this] {
        constexpr std::size_t compressed_bytes = 1 << 16;
        const std::string_view piece = content_.substr(taken_, compressed_bytes);
        taken_ += piece.size();
        return piece;
      }) {}

std::string_view TableText::next() {
  // A table whose durations are all the same is compressed to a tenth or so.
  constexpr std::size_t most_times = 100, from_bytes = 64'000'000;
  throw_if_interrupted();
  try {
    const std::size_t got = stream_.read(piece_.data(), piece_.size());
    if (got > most_bytes_ - unpacked_)
      throw FileFault(
          fmt::format("{}: unpacks to more than {} bytes, the most that a table may have", file_, most_bytes_));
    unpacked_ += got;
    if (unpacked_ > from_bytes && unpacked_ / most_times > taken_)
      throw FileFault(
          fmt::format("{}: unpacks to more than {} times its size, as no table of numbers does", file_, most_times));
    return {piece_.data(), got};
  } catch (const GzipFault& problem) {
    throw FileFault(fmt::format("{}: {}", file_, problem.what()));
  }
}

}  // namespace syncopate
