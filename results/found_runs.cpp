#include "results/directory/found_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <system_error>
#include <tuple>
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

bool is_hidden(const fs::path& path) {
  return std::ranges::any_of(path, [](const fs::path& part) { return part != "." && part.string().starts_with('.'); });
}

// `above`: where runs are looked for.
bool is_run_directory(const fs::path& path, const fs::path& above) {
  if (is_name_of_run(path.filename().string())) return fs::is_directory(path);
  return is_misnamed_run(path) && !is_hidden(path.lexically_relative(above));  // read_runs says what is wrong with it
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
  fs::path looked_at = directory;
  try {
    if (is_run_directory(fs::canonical(directory), fs::canonical(directory))) found.push_back(directory);
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory)) {
      looked_at = entry.path();
      if (is_run_directory(looked_at, directory) &&
          (with_trials || !is_among(looked_at.lexically_relative(directory), trials_folder)))
        found.push_back(looked_at);
    }
  } catch (const fs::filesystem_error& fault) {
    throw ResultsDirectoryFault(fmt::format("{}: {}{}", looked_at.string(), fault.code().message(), expected));
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

// Beginnings of the keys of [training] that the method has otherwise, of a table that it names again all keys
// (experiments/sections/table_forms.cpp).
std::vector<std::string> own_training(const Leaves& of_method) {
  constexpr std::array deciding = {"name", "schedule", "kind", "rule", "form"};
  std::vector<std::string> keys;
  for (const auto& [key, value] : of_method) {
    if (!key.starts_with("training.")) continue;
    const std::size_t dot = key.rfind('.');
    const bool is_whole_table = std::ranges::find(deciding, key.substr(dot + 1)) != deciding.end();
    keys.push_back(is_whole_table && dot > std::string_view("training.").size() ? key.substr(0, dot + 1) : key);
  }
  return keys;
}

// What the file describes and the run does not train: "models.cnn.channels" of an MLP's run.
void erase_what_is_not_trained(Leaves& configuration, const Leaves& of_method) {
  for (const auto& [described, chosen] : {std::pair{"models.", "model"}, std::pair{"datasets.", "dataset"}}) {
    std::vector<std::string> kept;
    for (const Leaves* const leaves : {&std::as_const(configuration), &of_method})
      for (const auto& [key, value] : *leaves)
        if (key.starts_with("training.") && key.substr(key.rfind('.') + 1) == chosen && value.size() > 2)
          kept.push_back(described + toml_key(value.substr(1, value.size() - 2)) + ".");
    std::erase_if(configuration, [&, described = std::string_view(described)](const auto& leaf) {
      const auto begins = [&](const std::string& table) { return leaf.first.starts_with(table); };
      return leaf.first.starts_with(described) && std::ranges::none_of(kept, begins);
    });
  }
}

// These keys are other methods'.
void erase_what_the_method_has_otherwise(Leaves& configuration, const Leaves& of_method) {
  for (const std::string& key : own_training(of_method))
    std::erase_if(configuration, [&](const auto& leaf) {
      return leaf.first == key || (leaf.first.starts_with(key) && (key.back() == '.' || leaf.first[key.size()] == '.'));
    });
}

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

// Also of "." in it.
std::string name_of(const fs::path& directory) {
  std::string name = directory.filename().string();
  return is_name_of_run(name) ? name : fs::canonical(directory).filename().string();
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
  erase_what_is_not_trained(configuration, of_method);
  erase_what_the_method_has_otherwise(configuration, of_method);
  return {.directory = directory,
          .summary = std::move(*summary),
          .on_wall_clock = name_of(directory).find("-mpi") != std::string::npos,
          .is_trial = is_among(fs::absolute(directory), trials_folder),
          .configuration = std::move(configuration),
          .of_method = std::move(of_method)};
}

std::string own_name(const FoundRun& run) {
  return run_directory_name(run.summary.seed, run.summary.hash, run.on_wall_clock);
}

bool is_misplaced(const FoundRun& run) { return name_of(run.directory) != own_name(run); }

// `runs`: those in their own places.
std::string fault_of_misplaced(const FoundRun& misplaced, std::span<const FoundRun> runs) {
  const auto same = std::ranges::find_if(runs, [&](const FoundRun& run) {
    return run.summary.hash == misplaced.summary.hash && run.on_wall_clock == misplaced.on_wall_clock;
  });
  const bool is_named_as_a_run = is_name_of_run(name_of(misplaced.directory));
  if (same != runs.end() && !is_named_as_a_run)
    return fmt::format("{}: holds the run of {}; it must be there once: remove the copy", misplaced.directory.string(),
                       same->directory.string());
  return fmt::format(
      "{}: holds the run of {}; must {}, or be removed: {}", misplaced.directory.string(), own_name(misplaced),
      is_named_as_a_run ? "hold its own" : "have its name",
      same != runs.end() ? "that run is in " + same->directory.string() : "the experiment's next start repeats it");
}

// Of runs with one hash. A copy and what it was made from are both left out, since either may be the one to keep.
void settle_same_hash(RunsAndFaults& read) {
  std::map<std::tuple<std::string, bool, bool>, std::vector<std::size_t>> places;
  for (std::size_t i = 0; i < read.runs.size(); ++i)
    places[{read.runs[i].summary.hash, read.runs[i].on_wall_clock, read.runs[i].is_trial}].push_back(i);
  std::set<std::size_t> left_out;
  std::map<std::pair<std::string, std::string>, std::pair<std::string, int>> copies;  // by the folders above them
  for (const auto& [hash, alike] : places) {
    if (alike.size() < 2) continue;
    const auto named = [&](std::size_t i) { return read.runs[i].summary.sweep.size(); };
    const std::size_t best = *std::ranges::max_element(alike, {}, named);
    for (const std::size_t i : alike) {
      if (i == best) continue;
      left_out.insert(i);
      const FoundRun &one = read.runs[best], &other = read.runs[i];
      if (one.summary.sweep != other.summary.sweep) continue;
      left_out.insert(best);
      auto& [text, count] = copies[{one.directory.parent_path().string(), other.directory.parent_path().string()}];
      if (count++ == 0)
        text = fmt::format("{} and {}: are the same run, by its hash; it must be there once: remove the copy",
                           one.directory.string(), other.directory.string());
    }
  }
  for (const auto& [folders, fault] : copies)
    read.faults.push_back(
        fault.second == 1 ? fault.first : fmt::format("{} ({} runs are in both folders)", fault.first, fault.second));
  std::vector<FoundRun> counted;
  for (std::size_t i = 0; i < read.runs.size(); ++i)
    if (!left_out.contains(i)) counted.push_back(std::move(read.runs[i]));
  read.runs = std::move(counted);
}

// When the run ended, in ISO 8601, UTC, so that texts compare as times; empty where nothing says so.
std::string end_of(const FoundRun& run) {
  const auto json = Json::parse(read_file(run.directory / "metadata.json").value_or(""), nullptr, false);
  for (const char* const key : {"end", "start"})
    if (json.is_object() && json.contains(key) && json[key].is_string()) return json[key].get<std::string>();
  return {};
}

// Of what another version of the results has made again.
std::vector<FoundRun> newest(std::vector<FoundRun> runs) {
  using Identity = std::tuple<std::string, std::string, std::uint64_t, bool, bool, Leaves, Leaves>;
  std::map<Identity, std::vector<std::size_t>> places;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const FoundRun& run = runs[i];
    places[{run.summary.experiment, run.summary.method, run.summary.seed, run.on_wall_clock, run.is_trial,
            run.configuration, run.of_method}]
        .push_back(i);
  }
  std::set<std::size_t> older;
  for (const auto& [identity, alike] : places) {
    if (alike.size() < 2) continue;
    const auto last = [&](std::size_t i) {
      return std::pair(runs[i].summary.status != RunStatus::failed, end_of(runs[i]));
    };
    const std::size_t kept = *std::ranges::max_element(alike, {}, last);
    for (const std::size_t i : alike)
      if (i != kept) older.insert(i);
  }
  std::vector<FoundRun> counted;
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (!older.contains(i)) counted.push_back(std::move(runs[i]));
  return counted;
}

std::vector<FoundRun> without_faults(RunsAndFaults read) {
  if (!read.faults.empty()) throw ResultsDirectoryFault(fmt::format("{}", fmt::join(read.faults, "\n")));
  return std::move(read.runs);
}

}  // namespace

RunsAndFaults read_runs(std::span<const fs::path> directories, const fs::path& above) {
  RunsAndFaults read;
  std::vector<FoundRun>& runs = read.runs;
  std::map<std::pair<std::string, std::string>, int> of_others;  // by experiment and version
  std::vector<std::pair<fs::path, std::string>> of_phases;       // faults, by directory
  std::vector<FoundRun> found, misplaced;
  const auto add_fault = [&](const fs::path& path, std::string fault) {
    if (may_be_common_phase(path))
      of_phases.emplace_back(path, std::move(fault));
    else
      read.faults.push_back(std::move(fault));
  };
  for (const fs::path& path : directories) {
    try {
      if (const auto other = other_schema(path))
        ++of_others[{other->experiment, other->version}];
      else
        found.push_back(read_run(path));
    } catch (const std::exception& fault) {
      add_fault(path, fault.what());
    }
  }
  for (FoundRun& run : found) (is_misplaced(run) ? misplaced : runs).push_back(std::move(run));
  for (const FoundRun& run : misplaced) add_fault(run.directory, fault_of_misplaced(run, runs));
  for (const auto& [kind, count] : of_others)
    read.faults.push_back(
        fmt::format("{}: {} of {} {} {}; read them with the program that made them: the experiment's next start "
                    "repeats them",
                    above.string(), count == 1 ? "1 run" : fmt::format("{} runs", count), kind.first,
                    count == 1 ? "is" : "are", of_other_schema(kind.second)));
  settle_same_hash(read);
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
  return newest(without_faults(read_runs(run_directories(directory, with_trials), directory)));
}

std::vector<FoundRun> find_runs_of(const fs::path& directory, const std::set<std::string>& hashes) {
  std::set<std::string> beginnings;
  for (const std::string& hash : hashes) beginnings.insert(begin_of_hash(hash));
  std::vector<fs::path> directories = run_directories(directory, false);
  std::erase_if(directories, [&](const fs::path& path) {
    const std::string name = name_of(path);
    return name.ends_with("-mpi") || !beginnings.contains(name.substr(name.find('-') + 1));
  });
  std::vector<FoundRun> runs = without_faults(read_runs(directories, directory));
  std::erase_if(runs, [&](const FoundRun& run) { return !hashes.contains(run.summary.hash); });
  return runs;
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
