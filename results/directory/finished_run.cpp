#include "results/directory/finished_run.hpp"

#include <exception>
#include <stdexcept>

#include "results/directory/run_files.hpp"
#include "results/directory/summary_json.hpp"
#include "results/formats/json.hpp"

namespace syncopate {

// The hash stands for all of the configuration but the description, which may have been another one.
std::optional<RunSummary> summary_of(const std::filesystem::path& directory, const Run& run) {
  std::optional<std::string> text;
  try {
    text = read_file(directory / "summary.json");
  } catch (const std::runtime_error&) {  // damage_of says what stands there
  }
  auto summary = text ? summary_from_json(*text) : std::nullopt;
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
    return Json::parse(read_file(directory / "metadata.json").value_or("")).at("call").get<std::string>() == call;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace syncopate
