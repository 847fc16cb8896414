#include "results/directory/experiment_folders.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <regex>
#include <set>
#include <system_error>
#include <utility>

#include "results/directory/run_directory.hpp"

namespace syncopate {
namespace fs = std::filesystem;
namespace {

struct Sign {
  std::string run{};  // the name of its directory
  bool is_checkpoint = false;
};

// A checkpoint, a rank's part of one, or what is still written under a hidden name.
std::optional<Sign> sign_in(const std::string& name) {
  static const std::regex of_unfinished(
      "\\.?(seed=[0-9]+-[0-9a-f]+(?:-mpi)?)(\\.checkpoint)?(\\.[0-9]+\\.[0-9]+)?(\\.(?:partial|replaced)\\..*)?");
  std::smatch parts;
  if (!std::regex_match(name, parts, of_unfinished) || (!parts[2].matched && !parts[4].matched)) return {};
  return Sign{.run = parts[1], .is_checkpoint = parts[2].matched && !parts[3].matched && !parts[4].matched};
}

class Look {
 public:
  explicit Look(fs::path above) : above_(std::move(above)) { into(above_); }

  std::vector<ExperimentFolder> found() {
    for (const fs::path& directory : empty_)
      if (is_place_of_experiment(directory)) folder(directory);
    std::vector<ExperimentFolder> folders;
    for (auto& [path, folder] : folders_) folders.push_back(std::move(folder));
    return folders;
  }

 private:
  ExperimentFolder& folder(const fs::path& directory) {
    ExperimentFolder& found = folders_[directory];
    found.directory = directory;
    return found;
  }

  // <experiment>/<method>/<run>, or with the folder of trials between them.
  ExperimentFolder& folder_of(const fs::path& run) {
    fs::path within = run.lexically_relative(above_).parent_path().parent_path();
    if (within.filename() == trials_folder) within = within.parent_path();
    return folder(within.empty() ? above_ : above_ / within);
  }

  // Not where an experiment's methods have their places.
  bool is_place_of_experiment(const fs::path& directory) const {
    if (directory == above_) return true;
    const fs::path parent = directory.parent_path();
    if (folders_.contains(parent)) return false;
    return parent == above_ ||
           std::ranges::any_of(folders_, [&](const auto& other) { return other.first.parent_path() == parent; });
  }

  void into(const fs::path& directory) {
    std::error_code error;
    if (!seen_.insert(fs::canonical(directory, error)).second) return;  // links may lead in circles
    std::vector<fs::path> entries;
    for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
      entries.push_back(entry->path());
    // What cannot be looked into may be a method of an experiment as well as one itself: those above say so.
    if (error)
      folder(directory == above_ ? directory : directory.parent_path())
          .faults.push_back(fmt::format("{}: {}", directory.string(), error.message()));
    if (entries.empty()) empty_.push_back(directory);
    std::ranges::sort(entries);
    for (const fs::path& entry : entries) look_at(entry);
  }

  void look_at(const fs::path& entry) {
    std::error_code error;
    const std::string name = entry.filename().string();
    const bool is_directory = fs::is_directory(entry, error);
    if (const auto sign = sign_in(name)) {
      const fs::path run = entry.parent_path() / sign->run;
      UnfinishedFiles& files = folder_of(run).unfinished[run];
      files.has_checkpoint |= sign->is_checkpoint;
      if (const auto written = fs::last_write_time(entry, error); !error)
        files.written = std::max(files.written, written);
    } else if (is_directory && (is_name_of_run(name) || is_misnamed_run(entry))) {
      folder_of(entry).runs.push_back(entry);
    } else if (is_directory && name == share_folder) {
      folder(entry.parent_path());
    } else if (is_directory && !name.starts_with('.')) {
      into(entry);
    }
  }

  fs::path above_;
  std::set<fs::path> seen_{};
  std::vector<fs::path> empty_{};
  std::map<fs::path, ExperimentFolder> folders_{};
};

}  // namespace

bool is_name_of_run(const std::string& name) {
  static const std::regex of_run("seed=[0-9]+-[0-9a-f]+(-mpi)?");
  return std::regex_match(name, of_run);
}

bool is_misnamed_run(const fs::path& directory) {
  const std::string name = directory.filename().string();
  if (name.starts_with('.') || is_name_of_run(name) || sign_in(name)) return false;
  std::error_code error;
  if (fs::symlink_status(directory, error).type() != fs::file_type::directory) return false;
  const bool has_summary = fs::is_regular_file(directory / "summary.json", error);
  const bool has_configuration = fs::is_regular_file(directory / "config.toml", error);
  return name.starts_with("seed=") ? has_summary || has_configuration : has_summary && has_configuration;
}

std::vector<ExperimentFolder> experiment_folders(const fs::path& directory) {
  std::error_code error;
  const fs::path whole = fs::canonical(directory, error);
  if (error || !fs::is_directory(whole, error)) return {};
  if (!is_name_of_run(whole.filename().string()) && !is_misnamed_run(whole)) return Look(directory).found();
  return {{.directory = directory, .runs = {directory}}};
}

}  // namespace syncopate
