#include "results/directory/runs_elsewhere.hpp"

#include <exception>
#include <system_error>
#include <vector>

#include "results/directory/run_directory.hpp"
#include "results/directory/summary_json.hpp"
#include "results/formats/json.hpp"
#include "results/rows/summary.hpp"
#include "workers/files/own_file.hpp"

namespace syncopate {
namespace fs = std::filesystem;
namespace {

std::vector<fs::path> folders_in(const fs::path& directory) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    if (entry->is_directory(error) && !entry->path().filename().string().starts_with(".")) folders.push_back(*entry);
  return folders;
}

// <results>/<experiment>/<method>/<run>, and that of trials in their folder.
std::vector<fs::path> run_folders(const fs::path& results) {
  std::vector<fs::path> runs;
  const auto add_runs_of = [&](const fs::path& experiment) {
    for (const fs::path& method : folders_in(experiment))
      if (method.filename() != trials_folder)
        for (fs::path& run : folders_in(method)) runs.push_back(std::move(run));
  };
  for (const fs::path& experiment : folders_in(results)) {
    add_runs_of(experiment);
    add_runs_of(experiment / trials_folder);
  }
  return runs;
}

// The files of a run's directory; nothing if one is damaged.
FileContents files_in(const fs::path& directory) {
  FileContents files;
  if (!damage_of(directory).empty()) return files;
  const Json listed_files = Json::parse(read_file(directory / list_of_files).value_or("")).at("files");
  for (const auto& [name, entry] : listed_files.items())
    if (auto contents = read_file(directory / name, any_size)) files[name] = *std::move(contents);
  return files;
}

// Nothing unless the run of these files is finished and has recorded what is wanted.
FileContents renamed(FileContents files, const Run& run, const std::string& copied_from) {
  const auto summary = summary_from_json(files.at("summary.json"));
  if (!summary || summary->status != RunStatus::finished || !covers(summary->recorded, run.recording)) return {};
  Json json = Json::parse(files.at("summary.json"));
  json["experiment"] = run.experiment;
  json["method"] = run.method;
  json["method_index"] = run.method_index;
  json["point_index"] = run.point_index;
  json["sweep"] = run.sweep;
  json.erase("own_training");
  if (!run.own_training.empty()) json["own_training"] = run.own_training;
  json.erase("links");
  if (run.cluster.network && run.cluster.network->has_unshared_links()) json["links"] = unshared_links;
  json["hash"] = run.hash;
  if (json.contains("recorded")) json["recorded"]["trace"] = nullptr;
  files["summary.json"] = json.dump(2) + "\n";
  Json metadata = Json::parse(files.at("metadata.json"));
  metadata["configuration_hash"] = run.hash;
  metadata["copied_from"] = copied_from;
  files["metadata.json"] = metadata.dump(2) + "\n";
  files["config.toml"] = run.resolved_toml;
  files.erase("trace.json.gz");
  files.erase(list_of_files);
  files[list_of_files] = listed(files);
  return files;
}

}  // namespace

void RunsElsewhere::look_through() {
  by_course_.emplace();
  for (const fs::path& folder : run_folders(results_)) try {
      const Json metadata = Json::parse(read_file(folder / "metadata.json").value_or(""));
      if (metadata.at("cluster") == "simulated" && metadata.at("exit") == "finished")
        by_course_->emplace(metadata.value("course", ""), folder);
    } catch (const std::exception&) {
    }
}

std::optional<FileContents> RunsElsewhere::files_for(const Run& run) {
  if (run.recording.trace || run.course.empty()) return {};
  if (!by_course_) look_through();
  const auto [first, last] = by_course_->equal_range(run.course);
  for (auto place = first; place != last; ++place) try {
      const fs::path& folder = place->second;
      FileContents files = renamed(files_in(folder), run, fs::relative(folder, results_).generic_string());
      if (!files.empty()) return files;
    } catch (const std::exception&) {
    }
  return {};
}

}  // namespace syncopate
