#include "results/directory/run_files.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "results/directory/schema_version.hpp"
#include "results/formats/json.hpp"
#include "results/rows/summary.hpp"
#include "workers/files/own_file.hpp"
#include "workers/process/printable.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;
constexpr std::array files_of_every_run = {"config.toml", "metadata.json", "metrics.csv", "steps.csv", "summary.json"};
struct Digest {
  std::size_t bytes = 0;
  uLong crc = crc32_z(0, nullptr, 0);

  void add(std::string_view part) {
    bytes += part.size();
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(part.data()), part.size());
  }
  std::string text() const { return fmt::format("{:08x}", crc); }
};

// Piece by piece: files of durations and traces may be large. Throws std::runtime_error: why it cannot be read.
Digest digest_of(OwnFile& file) {
  Digest digest;
  std::vector<char> piece(1 << 18);
  while (const std::size_t got = file.read(piece.data(), piece.size())) digest.add({piece.data(), got});
  return digest;
}

// Empty: the file is as it is listed.
std::string wrong_with(const fs::path& path, const Json& entry) {
  const auto bytes = entry.at("bytes").get<std::uint64_t>();
  const auto crc = entry.at("crc32").get<std::string>();
  try {
    OwnFile file(path);
    if (file.size() != bytes) return fmt::format("has {} bytes, where {} were written", file.size(), bytes);
    return digest_of(file).text() == crc ? "" : "has other contents than were written: its digest differs";
  } catch (const std::runtime_error& problem) {
    return problem.what();
  }
}

}  // namespace

std::string listed(const FileContents& files) {
  Json json;
  json["schema_version"] = results_schema_version;
  json["files"] = Json::object();
  for (const auto& [name, contents] : files) {
    Digest digest;
    digest.add(contents);
    json["files"][name] = {{"bytes", digest.bytes}, {"crc32", digest.text()}};
  }
  return json.dump(2) + "\n";
}

std::string damage_of(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) return {};
  const fs::path list = directory / list_of_files;
  try {
    const auto text = read_file(list);
    if (!text) return fmt::format("{}: is not there", list.string());
    if (const auto other = other_schema_version(*text))
      return fmt::format("{}: is {}", list.string(), of_other_schema(*other));
    const Json json = Json::parse(*text);
    json.at("schema_version").get<int>();
    for (const char* name : files_of_every_run)
      if (!json.at("files").contains(name)) return fmt::format("{}: does not list {}", list.string(), name);
    for (const auto& [name, entry] : json.at("files").items()) {
      const fs::path path = directory / name;
      if (name.empty() || path.filename() != name || name == "..")
        return fmt::format("{}: lists {}, which leads elsewhere", list.string(), printable(name));
      if (const std::string wrong = wrong_with(path, entry); !wrong.empty())
        return fmt::format("{}: {}", path.string(), wrong);
    }
    return {};
  } catch (const std::exception&) {  // a directory, not JSON, a missing key, a wrong type
    return fmt::format("{}: is not a list of files with their sizes and digests", list.string());
  }
}

}  // namespace syncopate
