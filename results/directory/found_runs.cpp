#include "results/directory/found_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "results/directory/experiment_folders.hpp"
#include "results/directory/run_directory.hpp"
#include "results/directory/run_files.hpp"
#include "results/directory/schema_version.hpp"
#include "results/directory/summary_json.hpp"
#include "results/formats/json.hpp"
#include "workers/files/own_file.hpp"
#include "workers/process/printable.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

constexpr const char* common_phase = "common phase";

bool is_run_directory(const fs::path& path) {
  return is_name_of_run(path.filename().string()) && fs::is_directory(path);
}

bool is_among(const fs::path& path, const char* folder) {
  return std::ranges::find(path, fs::path(folder)) != path.end();
}

std::vector<fs::path> run_directories(const fs::path& directory, bool with_trials) {
  const std::string expected = "; expected a directory above runs, such as results/runs/<experiment>";
  std::error_code problem;
  if (!fs::exists(directory, problem))
    throw ResultsDirectoryFault(fmt::format("{}: no such directory{}", directory.string(), expected));
  if (!fs::is_directory(directory, problem))
    throw ResultsDirectoryFault(fmt::format("{}: not a directory{}", directory.string(), expected));
  std::vector<fs::path> found;
  try {
    if (is_run_directory(fs::canonical(directory))) found.push_back(directory);
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory))
      if (is_run_directory(entry.path()) &&
          (with_trials || !is_among(entry.path().lexically_relative(directory), trials_folder)))
        found.push_back(entry.path());
  } catch (const fs::filesystem_error& fault) {
    throw ResultsDirectoryFault(fmt::format("{}: {}{}", directory.string(), fault.code().message(), expected));
  }
  if (found.empty()) {
    const bool is_kept = fs::is_regular_file(directory / "claims.json", problem);
    throw ResultsDirectoryFault(
        fmt::format("{}: holds no runs (directories named seed=<number>-<hash>){}{}", directory.string(),
                    is_kept ? "; these are kept summaries of finished runs, which ./dev report shows" : "", expected));
  }
  std::ranges::sort(found);
  return found;
}

void add_leaves(const TomlNode& node, const std::string& key, std::map<std::string, std::string>& leaves) {
  if (node.is_table()) {
    for (const TomlNode::Member& member : node.table())
      add_leaves(member.value, key.empty() ? toml_key(member.key) : key + "." + toml_key(member.key), leaves);
  } else if (node.is_array_of_tables()) {
    for (std::size_t i = 0; i < node.array().size(); ++i)
      add_leaves(node.array()[i], fmt::format("{}.{}", key, i), leaves);
  } else {
    leaves[key] = inline_toml(node);
  }
}

using Leaves = std::map<std::string, std::string>;

// Of the whole file, and of its method.
std::pair<Leaves, Leaves> configuration_of(const fs::path& file) {
  const auto text = read_file(file);
  if (!text) throw ResultsDirectoryFault(file.string() + ": not there; expected the run's resolved configuration");
  try {
    TomlNode document = parse_toml(*text, file.string());
    std::pair<Leaves, Leaves> leaves;
    const TomlNode* methods = document.find("methods");
    if (methods && methods->is_array_of_tables()) add_leaves(methods->array().front(), "", leaves.second);
    for (const char* const key : {"name", "description", "seeds", "methods", "recording", "checkpoint"})
      document.erase(key);
    add_leaves(document, "", leaves.first);
    return leaves;
  } catch (const TomlSyntaxFault& fault) {
    throw ResultsDirectoryFault(fault.what());
  }
}

// <experiment>/common-phase.../<run>, as a method of that name would have it.
bool may_be_common_phase(const fs::path& directory) {
  const std::string folder = fs::absolute(directory).parent_path().filename().string(), name = slug(common_phase);
  return folder == name || folder.starts_with(name + "_");
}

fs::path experiment_of(const fs::path& run) { return fs::absolute(run).parent_path().parent_path(); }

// Of a run that another program made: all of an experiment are named together.
struct OtherSchema {
  std::string version;
  std::string experiment;  // in quotes, or where it is
};

std::optional<OtherSchema> other_schema(const fs::path& directory) try {
  const std::string summary = read_file(directory / "summary.json").value_or("");
  auto version = other_schema_version(summary);
  if (!version) version = other_schema_version(read_file(directory / list_of_files).value_or(""));
  if (!version) return {};
  const auto json = Json::parse(summary, nullptr, false);
  const bool is_named = json.is_object() && json.contains("experiment") && json["experiment"].is_string();
  return OtherSchema{*std::move(version), is_named
                                              ? fmt::format("\"{}\"", printable(json["experiment"].get<std::string>()))
                                              : directory.parent_path().string()};
} catch (const std::exception&) {
  return {};  // what cannot be read is read_run's to tell
}

FoundRun read_run(const fs::path& directory) {
  if (const std::string damage = damage_of(directory); !damage.empty())
    throw ResultsDirectoryFault(damage + "; the experiment's next start repeats the run");
  const fs::path file = directory / "summary.json";
  const auto text = read_file(file);
  if (!text)
    throw ResultsDirectoryFault(file.string() + ": not there; expected the run's summary: copy whole directories");
  std::optional<RunSummary> summary = summary_from_json(*text);
  if (!summary)
    throw ResultsDirectoryFault(
        fmt::format("{}: is no run's summary; the experiment's next start repeats the run", file.string()));
  auto [configuration, of_method] = configuration_of(directory / "config.toml");
  return {.directory = directory,
          .summary = std::move(*summary),
          .on_wall_clock = directory.filename().string().ends_with("-mpi"),
          .is_trial = is_among(fs::absolute(directory), trials_folder),
          .configuration = std::move(configuration),
          .of_method = std::move(of_method)};
}

}  // namespace

RunsAndFaults read_runs(std::span<const fs::path> directories, const fs::path& above) {
  RunsAndFaults read;
  std::vector<FoundRun>& runs = read.runs;
  std::map<std::pair<std::string, std::string>, int> of_others;  // by experiment and version
  std::vector<std::pair<fs::path, std::string>> of_phases;       // faults, by directory
  for (const fs::path& path : directories) {
    try {
      if (const auto other = other_schema(path))
        ++of_others[{other->experiment, other->version}];
      else
        runs.push_back(read_run(path));
    } catch (const std::exception& fault) {
      if (may_be_common_phase(path))
        of_phases.emplace_back(path, fault.what());
      else
        read.faults.emplace_back(fault.what());
    }
  }
  for (const auto& [kind, count] : of_others)
    read.faults.push_back(
        fmt::format("{}: {} of {} {} {}; read them with the program that made them: the experiment's next start "
                    "repeats them",
                    above.string(), count == 1 ? "1 run" : fmt::format("{} runs", count), kind.first,
                    count == 1 ? "is" : "are", of_other_schema(kind.second)));
  std::set<std::string> with_common_phase;
  std::set<fs::path> folders_with_common_phase;
  const auto is_of_phase = [](const auto& leaf) { return leaf.first.starts_with("training.common."); };
  for (const FoundRun& run : runs)
    if (std::ranges::any_of(run.configuration, is_of_phase) || std::ranges::any_of(run.of_method, is_of_phase)) {
      with_common_phase.insert(run.summary.experiment);
      folders_with_common_phase.insert(experiment_of(run.directory));
    }
  for (auto& [path, fault] : of_phases)
    (folders_with_common_phase.contains(experiment_of(path)) ? read.faults_of_common_phases : read.faults)
        .push_back(std::move(fault));
  std::erase_if(runs, [&](const FoundRun& run) {
    return run.summary.method == common_phase && with_common_phase.contains(run.summary.experiment);
  });
  return read;
}

std::vector<FoundRun> find_runs(const fs::path& directory, bool with_trials) {
  RunsAndFaults read = read_runs(run_directories(directory, with_trials), directory);
  if (!read.faults.empty()) throw ResultsDirectoryFault(fmt::format("{}", fmt::join(read.faults, "\n")));
  return std::move(read.runs);
}

std::vector<std::vector<FoundRun>> by_experiment(std::vector<FoundRun> runs) {
  std::vector<std::vector<FoundRun>> experiments;
  for (FoundRun& run : runs) {
    const auto found = std::ranges::find(experiments, run.summary.experiment, [](const std::vector<FoundRun>& members) {
      return members.front().summary.experiment;
    });
    if (found == experiments.end())
      experiments.emplace_back().push_back(std::move(run));
    else
      found->push_back(std::move(run));
  }
  return experiments;
}

std::vector<std::string> varied_keys(std::span<const FoundRun> runs) {
  std::map<std::string, std::map<std::string, std::set<std::string>>> values;  // by key, then method
  std::set<std::string> keys;
  for (const FoundRun& run : runs)
    for (const auto& [key, value] : run.configuration) keys.insert(key);
  for (const FoundRun& run : runs)
    for (const std::string& key : keys) {
      const auto found = run.configuration.find(key);
      values[key][run.summary.method].insert(found == run.configuration.end() ? "" : found->second);
    }
  std::vector<std::string> varied;
  for (const auto& [key, of_methods] : values)
    if (std::ranges::any_of(of_methods, [](const auto& method) { return method.second.size() > 1; }))
      varied.push_back(key);
  return varied;
}

}  // namespace syncopate
