#include "results/directory/finished_run.hpp"

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>

#include "results/directory/run_files.hpp"
#include "results/directory/summary_json.hpp"
#include "results/formats/json.hpp"

namespace syncopate {

std::optional<std::string> read_file(const std::filesystem::path& path) {
  std::error_code none;
  const auto status = std::filesystem::status(path, none);
  if (std::filesystem::is_directory(status)) throw std::runtime_error(path.string() + ": is a directory");
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))  // a pipe would be waited for
    throw std::runtime_error(path.string() + ": is not a regular file");
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The hash stands for all of the configuration but the description, which may have been another one.
std::optional<RunSummary> summary_of(const std::filesystem::path& directory, const Run& run) {
  const auto text = read_file(directory / "summary.json");
  if (!text) return {};
  auto summary = summary_from_json(*text);
  if (!summary || summary->hash != run.hash) return {};
  summary->method_index = run.method_index;
  summary->point_index = run.point_index;
  return summary;
}

std::optional<RunSummary> finished_before(const std::filesystem::path& directory, const Run& run) {
  if (!damage_of(directory).empty()) return {};
  auto summary = summary_of(directory, run);
  if (!summary || summary->status != RunStatus::finished || !covers(summary->recorded, run.recording)) return {};
  return summary;
}

std::optional<RunSummary> tried_before(const std::filesystem::path& directory, const Run& run) {
  if (auto finished = finished_before(directory, run)) return finished;
  if (!damage_of(directory).empty()) return {};
  auto summary = summary_of(directory, run);
  return summary && summary->status == RunStatus::diverged ? summary : std::nullopt;
}

bool was_made_by(const std::filesystem::path& directory, const std::string& call) {
  try {
    return Json::parse(read_file(directory / "metadata.json").value_or("")).at("call") == call;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace syncopate
