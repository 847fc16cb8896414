#include "results/found_runs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <regex>
#include <tuple>

#include "results/text_table.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/config/key_path.hpp"

namespace syncopate {

namespace fs = std::filesystem;
namespace {

// A file that belongs to an unfinished run.
struct Sign {
  std::string run{};  // name of the run's directory
  bool is_checkpoint = false;
};

// Recognises a checkpoint, a rank's part of a checkpoint, and a hidden file that is still being written.
std::optional<Sign> sign_in(const std::string& name) {
  static const std::regex of_unfinished(
      "\\.?(seed=[0-9]+-[0-9a-f]+(?:-mpi)?)(\\.checkpoint)?(\\.[0-9]+\\.[0-9]+)?(\\.(?:partial|replaced)\\..*)?");
  std::smatch parts;
  if (!std::regex_match(name, parts, of_unfinished) || (!parts[2].matched && !parts[4].matched)) return {};
  return Sign{.run = parts[1], .is_checkpoint = parts[2].matched && !parts[3].matched && !parts[4].matched};
}

// Whether the name is seed=<number>-<hash>, that of a run's directory.
bool is_name_of_run(const std::string& name) {
  static const std::regex of_run("seed=[0-9]+-[0-9a-f]+(-mpi)?");
  return std::regex_match(name, of_run);
}

// Whether the directory contains a run's files but has another kind of name, such as "seed=1-20c62185.bak". It is then
// a copy or a renamed run. Links and hidden or unfinished directories do not count.
bool is_misnamed_run(const fs::path& directory) {
  const std::string name = directory.filename().string();
  if (name.starts_with('.') || is_name_of_run(name) || sign_in(name)) return false;
  std::error_code error;
  if (fs::symlink_status(directory, error).type() != fs::file_type::directory) return false;
  const bool has_summary = fs::is_regular_file(directory / "summary.json", error);
  const bool has_configuration = fs::is_regular_file(directory / "config.toml", error);
  return name.starts_with("seed=") ? has_summary || has_configuration : has_summary && has_configuration;
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
    return folders_.try_emplace(directory, ExperimentFolder{.directory = directory}).first->second;
  }

  // The folder of the run's experiment. Paths are <experiment>/<method>/<run> or <experiment>/Trials/<method>/<run>.
  ExperimentFolder& folder_of(const fs::path& run) {
    fs::path within = run.lexically_relative(above_).parent_path().parent_path();
    if (within.filename() == trials_folder) within = within.parent_path();
    return folder(within.empty() ? above_ : above_ / within);
  }

  // Whether an experiment could be in this directory. False inside an experiment, where methods have their folders.
  bool is_place_of_experiment(const fs::path& directory) const {
    if (directory == above_) return true;
    const fs::path parent = directory.parent_path();
    if (folders_.contains(parent)) return false;
    return parent == above_ ||
           std::ranges::any_of(folders_, [&](const auto& other) { return other.first.parent_path() == parent; });
  }

  void into(const fs::path& directory) {
    std::error_code error;
    if (!seen_.insert(fs::canonical(directory, error)).second) return;  // links may form a cycle
    std::vector<fs::path> entries = paths_in(directory, error);
    // An unreadable directory may be an experiment or one of its methods, so the fault is for the folder above it.
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

constexpr const char* common_phase = "common phase";

// `above`: the directory in which the user searches for runs. A misnamed run counts, so that read_runs reports it.
bool is_run_directory(const fs::path& path, const fs::path& above) {
  if (is_name_of_run(path.filename().string())) return fs::is_directory(path);
  const auto is_hidden = [](const fs::path& part) { return part != "." && part.string().starts_with('.'); };
  return is_misnamed_run(path) && std::ranges::none_of(path.lexically_relative(above), is_hidden);
}

bool is_among_trials(const fs::path& path) { return std::ranges::find(path, fs::path(trials_folder)) != path.end(); }

std::vector<fs::path> run_directories(const fs::path& directory, bool with_trials) {
  const std::string expected = "; expected a directory that contains runs, such as results/runs/<experiment>";
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
          (with_trials || !is_among_trials(looked_at.lexically_relative(directory))))
        found.push_back(looked_at);
    }
  } catch (const fs::filesystem_error& fault) {
    throw ResultsDirectoryFault(fmt::format("{}: {}{}", looked_at.string(), fault.code().message(), expected));
  }
  if (found.empty()) {
    const bool is_kept = fs::is_regular_file(directory / "claims.json", problem);
    throw ResultsDirectoryFault(
        fmt::format("{}: contains no runs (directories named seed=<number>-<hash>){}{}", directory.string(),
                    is_kept ? "; these are kept summaries of finished runs, which ./dev report shows" : "", expected));
  }
  std::ranges::sort(found);
  return found;
}

using Leaves = std::map<std::string, std::string>;

Leaves leaves_in(const TomlNode& node) {
  const KeyValues all = leaves_of(node);
  return {all.begin(), all.end()};
}

// Whether the path is <experiment>/common-phase.../<run>. This is not certain, since a method may have the same name.
bool may_be_common_phase(const fs::path& directory) {
  const std::string folder = fs::absolute(directory).parent_path().filename().string(), name = slug(common_phase);
  return folder == name || folder.starts_with(name + "_");
}

fs::path experiment_of(const fs::path& run) { return fs::absolute(run).parent_path().parent_path(); }

// Prefixes of the [training] keys that the method overrides. If the method sets a table's name, it overrides the whole
// table (experiments/sections/variation.cpp).
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

// Erases the keys of models and data sets that the run does not use, such as "models.cnn.channels" for an MLP's run.
void erase_unused(Leaves& configuration, const Leaves& of_method) {
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

// Erases [training] keys that the method overrides, because they apply only to other methods.
void erase_overridden(Leaves& configuration, const Leaves& of_method) {
  for (const std::string& key : own_training(of_method))
    std::erase_if(configuration, [&](const auto& leaf) {
      return leaf.first == key || (leaf.first.starts_with(key) && (key.back() == '.' || leaf.first[key.size()] == '.'));
    });
}

// Keys of the run's file, without those that the run does not use, and keys of its method.
std::pair<Leaves, Leaves> used_configuration_of(const std::string& resolved_toml, const std::string& file) try {
  TomlNode document = parse_toml(resolved_toml, file);
  Leaves of_method;
  const TomlNode* methods = document.find("methods");
  if (methods && methods->is_array_of_tables()) of_method = leaves_in(methods->array().front());
  for (const char* const key : {"name", "description", "seeds", "methods", "recording", "checkpoint"})
    document.erase(key);
  Leaves configuration = leaves_in(document);
  erase_unused(configuration, of_method);
  erase_overridden(configuration, of_method);
  return {std::move(configuration), std::move(of_method)};
} catch (const TomlSyntaxFault& fault) {
  throw ResultsDirectoryFault(fault.what());
}

// The fields of a line of CSV (RFC 4180); no field contains a line break.
std::vector<std::string> csv_fields(std::string_view line) {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool is_quote = line[i] == '"';
    if (is_quote && is_quoted && i + 1 < line.size() && line[i + 1] == '"')
      fields.back() += line[i++];
    else if (is_quote)
      is_quoted = !is_quoted;
    else if (line[i] == ',' && !is_quoted)
      fields.emplace_back();
    else if (line[i] != '\r')
      fields.back() += line[i];
  }
  return fields;
}

// The rows of a table whose first line is the heading. `file`: named in faults.
std::vector<CsvRow> csv_rows(std::span<const std::string> lines, const fs::path& file) {
  std::vector<CsvRow> rows;
  if (lines.empty()) return rows;
  const std::vector<std::string> heading = csv_fields(lines.front());
  for (std::size_t number = 1; number < lines.size(); ++number) {
    const std::vector<std::string> fields = csv_fields(lines[number]);
    if (fields.size() != heading.size())
      throw ResultsDirectoryFault(fmt::format("{}: row {} has {} fields; the heading has {}", file.string(), number,
                                              fields.size(), heading.size()));
    CsvRow& row = rows.emplace_back();
    for (std::size_t i = 0; i < fields.size(); ++i) row[heading[i]] = fields[i];
  }
  return rows;
}

std::vector<CsvRow> read_csv(const fs::path& file) {
  const auto text = read_file(file);
  if (!text) throw ResultsDirectoryFault(file.string() + ": is missing; expected a table, as `export` writes it");
  return csv_rows(split_lines(*text), file);
}

// Whether the row has the run's method, seed and swept values.
bool is_named_like(const CsvRow& row, const Run& run) {
  if (field(row, "method") != run.method || field(row, "seed") != std::to_string(run.seed)) return false;
  return std::ranges::all_of(run.sweep, [&](const auto& swept) {
    const auto column = row.find(column_of(swept.first));
    return column == row.end() ||  // the key has the same value in all rows
           is_same_value(swept.second, column->second);
  });
}

// Returns the run's row; null if there is none. A tuned run's hash depends on the results of its trials, so it may
// differ from the hash that the experiment file gives. Then method, seed and swept values must identify one row.
const CsvRow* row_of(const std::vector<CsvRow>& table, const Run& run) {
  std::vector<const CsvRow*> named;
  for (const CsvRow& row : table) {
    if (field(row, "status") != to_string(RunStatus::finished) || field(row, "clock") != "virtual") continue;
    if (field(row, "hash") == run.hash) return &row;
    if (is_named_like(row, run)) named.push_back(&row);
  }
  return named.size() == 1 ? named.front() : nullptr;
}

// The experiment (its name in quotes, or its path) and the schema version of a run with files of another version;
// otherwise nullopt.
std::optional<std::pair<std::string, std::string>> other_schema(const fs::path& directory) try {
  const std::string summary = read_file(directory / "summary.json").value_or("");
  auto version = other_schema_version(summary);
  if (!version) version = other_schema_version(read_file(directory / list_of_files).value_or(""));
  if (!version) return {};
  const auto json = Json::parse(summary, nullptr, false);
  const bool is_named = json.is_object() && json.contains("experiment") && json["experiment"].is_string();
  return std::pair(is_named ? fmt::format("\"{}\"", printable(json["experiment"].get<std::string>()))
                            : directory.parent_path().string(),
                   *std::move(version));
} catch (const std::exception&) {
  return {};  // read_run reports unreadable files
}

// The run's directory name, even if `directory` is ".".
std::string name_of(const fs::path& directory) {
  std::string name = directory.filename().string();
  return is_name_of_run(name) ? name : fs::canonical(directory).filename().string();
}

FoundRun read_run(const fs::path& directory) {
  if (const std::string damage = damage_of(directory); !damage.empty())
    throw ResultsDirectoryFault(damage + "; the experiment's next start repeats the run");
  const fs::path file = directory / "summary.json", config = directory / "config.toml";
  std::optional<RunSummary> summary = summary_from_json(read_file(file).value_or(""));
  if (!summary)
    throw ResultsDirectoryFault(
        fmt::format("{}: is not the summary of a run; the experiment's next start repeats the run", file.string()));
  auto [configuration, of_method] = used_configuration_of(read_file(config).value(), config.string());
  return {.directory = directory,
          .summary = std::move(*summary),
          .on_wall_clock = name_of(directory).find("-mpi") != std::string::npos,
          .is_trial = is_among_trials(fs::absolute(directory)),
          .configuration = std::move(configuration),
          .of_method = std::move(of_method)};
}

std::string own_name(const FoundRun& run) {
  return run_directory_name(run.summary.seed, run.summary.hash, run.on_wall_clock);
}

std::string fault_of_misplaced(const FoundRun& misplaced, std::span<const FoundRun> runs) {
  const auto same = std::ranges::find_if(runs, [&](const FoundRun& run) {
    return run.summary.hash == misplaced.summary.hash && run.on_wall_clock == misplaced.on_wall_clock;
  });
  const bool is_named_as_a_run = is_name_of_run(name_of(misplaced.directory));
  if (same != runs.end() && !is_named_as_a_run)
    return fmt::format("{}: contains a copy of the run in {}; remove one of the two", misplaced.directory.string(),
                       same->directory.string());
  return fmt::format(
      "{}: contains the run {}; must {}, or be removed: {}", misplaced.directory.string(), own_name(misplaced),
      is_named_as_a_run ? "contain the run of its name" : "have the name of this run",
      same != runs.end() ? "that run is in " + same->directory.string() : "the experiment's next start repeats it");
}

std::vector<FoundRun> without(std::vector<FoundRun> runs, const std::set<std::size_t>& left_out) {
  std::vector<FoundRun> counted;
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (!left_out.contains(i)) counted.push_back(std::move(runs[i]));
  return counted;
}

// Applies find_runs' rules for runs with the same hash. Leaves out a copy and its original: nothing tells them apart.
void settle_same_hash(RunsAndFaults& read) {
  std::map<std::tuple<std::string, bool, bool>, std::vector<std::size_t>> places;
  for (std::size_t i = 0; i < read.runs.size(); ++i)
    places[{read.runs[i].summary.hash, read.runs[i].on_wall_clock, read.runs[i].is_trial}].push_back(i);
  std::set<std::size_t> left_out;
  // By pair of folders with the same runs: the message about the first such run, and the number of such runs.
  std::map<std::pair<std::string, std::string>, std::pair<std::string, int>> copies;
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
        text = fmt::format("{} and {}: contain the same run (their hashes are equal); remove one of the two",
                           one.directory.string(), other.directory.string());
    }
  }
  for (const auto& [folders, fault] : copies)
    read.faults.push_back(
        fault.second == 1 ? fault.first : fmt::format("{} ({} runs are in both folders)", fault.first, fault.second));
  read.runs = without(std::move(read.runs), left_out);
}

// The run's end in ISO 8601, UTC, so that texts compare as times; if the end is unknown, the start; if both are, empty.
std::string end_of(const FoundRun& run) {
  const auto json = Json::parse(read_file(run.directory / "metadata.json").value_or(""), nullptr, false);
  for (const char* const key : {"end", "start"})
    if (json.is_object() && json.contains(key) && json[key].is_string()) return json[key].get<std::string>();
  return {};
}

// If runs differ only in the version of the results, keeps the newest of them.
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
  return without(std::move(runs), older);
}

std::vector<FoundRun> without_faults(RunsAndFaults read) {
  if (!read.faults.empty()) throw ResultsDirectoryFault(fmt::format("{}", fmt::join(read.faults, "\n")));
  return std::move(read.runs);
}

// The files of a run's directory; empty if one is damaged.
FileContents files_in(const fs::path& directory) {
  FileContents files;
  if (!damage_of(directory).empty()) return files;
  const Json listed_files = Json::parse(read_file(directory / list_of_files).value_or("")).at("files");
  for (const auto& [name, entry] : listed_files.items())
    if (auto contents = read_file(directory / name, any_size)) files[name] = *std::move(contents);
  return files;
}

// The files of a run, with the names of its experiment and method changed to those of `run`. Empty unless the files'
// run finished and recorded everything that `run` asks for.
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

std::multimap<std::string, fs::path> simulated_runs_by_fingerprint(const fs::path& results) {
  std::multimap<std::string, fs::path> by_fingerprint;
  for (const ExperimentFolder& experiment : experiment_folders(results))
    for (const fs::path& folder : experiment.runs) try {
        const Json metadata = Json::parse(read_file(folder / "metadata.json").value_or(""));
        if (metadata.at("cluster") == "simulated" && metadata.at("exit") == "finished")
          by_fingerprint.emplace(metadata.value("course", ""), folder);
      } catch (const std::exception&) {
      }
  return by_fingerprint;
}

// Keys and their values as an object, in their order.
template <typename AnyJson>
void list_names(JsonMembers<AnyJson> members, Listed<KeyValues, AnyJson>& names) {
  if constexpr (members.reads) {
    for (const auto& [key, value] : members.json.items()) names.emplace_back(key, value.template get<std::string>());
  } else {
    members.json = Json::object();
    for (const auto& [key, value] : names) members.json[key] = value;
  }
}

}  // namespace

std::vector<ExperimentFolder> experiment_folders(const fs::path& directory) {
  std::error_code error;
  const fs::path whole = fs::canonical(directory, error);
  if (error || !fs::is_directory(whole, error)) return {};
  if (!is_name_of_run(whole.filename().string()) && !is_misnamed_run(whole)) return Look(directory).found();
  return {{.directory = directory, .runs = {directory}}};
}

std::optional<RunSummary> summary_of(const fs::path& directory, const std::string& hash) try {
  auto summary = summary_from_json(read_file(directory / "summary.json").value_or(""));
  return summary && summary->hash == hash ? std::move(summary) : std::nullopt;
} catch (const std::runtime_error&) {  // damage_of reports an unreadable file
  return {};
}

std::optional<RunSummary> summary_of(const fs::path& directory, const Run& run) {
  auto summary = summary_of(directory, run.hash);
  if (!summary) return {};
  summary->method_index = run.method_index;
  summary->point_index = run.point_index;
  return summary;
}

std::optional<RunSummary> finished_before(const fs::path& directory, const Run& run) {
  if (!damage_of(directory).empty()) return {};
  auto summary = summary_of(directory, run);
  if (!summary || (run.is_trial && summary->status == RunStatus::diverged)) return summary;
  if (summary->status != RunStatus::finished || !covers(summary->recorded, run.recording)) return {};
  return summary;
}

bool was_made_by(const fs::path& directory, const std::string& call) try {
  return Json::parse(read_file(directory / "metadata.json").value_or("")).at("call").get<std::string>() == call;
} catch (const std::exception&) {
  return false;
}

RunsAndFaults read_runs(std::span<const fs::path> directories, const fs::path& above) {
  RunsAndFaults read;
  std::vector<FoundRun>& runs = read.runs;
  std::map<std::pair<std::string, std::string>, int> of_others;  // by experiment and version, for one fault each
  std::vector<std::pair<fs::path, std::string>> of_phases;       // directories of common phases, and their faults
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
        ++of_others[*other];
      else
        found.push_back(read_run(path));
    } catch (const std::exception& fault) {
      add_fault(path, fault.what());
    }
  }
  for (FoundRun& run : found) (name_of(run.directory) == own_name(run) ? runs : misplaced).push_back(std::move(run));
  for (const FoundRun& run : misplaced) add_fault(run.directory, fault_of_misplaced(run, runs));
  for (const auto& [kind, count] : of_others)
    read.faults.push_back(
        fmt::format("{}: {} of {} {} {}; read them with the program that made them, because the experiment's next "
                    "start repeats them",
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

bool is_same_value(const std::string& value, const std::string& written) {
  const auto x = number_in(value), y = number_in(written);
  return value == written || (x && y && *x == *y) || "\"" + value + "\"" == written;
}

std::string column_of(const std::string& swept_key) {
  std::vector<std::string> path;
  try {
    path = split_key(swept_key);
  } catch (const KeyPathFault&) {  // a key that another program wrote is left unchanged
  }
  if (path.size() < 3 || path.front() != "methods") return swept_key;
  std::string column = "method";
  for (std::size_t i = 2; i < path.size(); ++i) column += "." + path[i];
  return column;
}

std::vector<FoundRun> runs_of_table(const fs::path& runs_csv, std::span<const Run> runs) {
  const std::vector<CsvRow> table = read_csv(runs_csv);
  std::vector<FoundRun> found;
  for (const Run& run : runs) {
    const CsvRow* const row = row_of(table, run);
    if (!row) continue;
    FoundRun& one = found.emplace_back();
    one.directory = runs_csv.parent_path();
    static_cast<RunName&>(one.summary) = static_cast<const RunName&>(run);
    one.summary.hash = field(*row, "hash");
    for (const Measure& measure : measures())
      if (const auto number = number_in(field(*row, measure.name))) one.summary.tabled[measure.name] = *number;
    one.summary.end_time_s = number_in(field(*row, "end_time_s")).value_or(0);
    if (run.evaluation.target_accuracy || run.evaluation.target_loss)
      one.summary.time_to_target = TimeToTarget{.target_accuracy = run.evaluation.target_accuracy,
                                                .target_loss = run.evaluation.target_loss,
                                                .time_s = number_in(field(*row, "time_to_target_s"))};
    std::tie(one.configuration, one.of_method) = used_configuration_of(run.resolved_toml, runs_csv.string());
  }
  return found;
}

std::string field(const CsvRow& row, std::string_view column) {
  const auto found = row.find(column);
  return found == row.end() ? "" : found->second;
}

std::vector<CsvRow> evaluations_of(const fs::path& directory, const RunSummary& run) {
  if (run.tabled.empty()) return csv_rows(evaluation_lines(directory), directory / "metrics.csv");
  std::vector<CsvRow> rows = read_csv(directory / "evaluations.csv");
  std::erase_if(rows, [&run](const CsvRow& row) { return field(row, "hash") != run.hash; });
  return rows;
}

std::vector<std::string> varied_keys(std::span<const Keyed> members) {
  std::set<std::string> keys;
  for (const auto& [group, values] : members)
    for (const auto& [key, value] : *values) keys.insert(key);
  std::erase_if(keys, [&](const std::string& key) {
    std::map<std::string, std::set<std::string>> values_of;  // values by group
    for (const auto& [group, values] : members) {
      const auto found = values->find(key);
      values_of[group].insert(found == values->end() ? "" : found->second);
    }
    return std::ranges::none_of(values_of, [](const auto& values) { return values.second.size() > 1; });
  });
  return {keys.begin(), keys.end()};
}

std::vector<std::string> evaluation_lines(const fs::path& directory) {
  const fs::path file = directory / "metrics.csv";
  const auto text = read_file(file, any_size);
  if (!text) throw std::runtime_error(file.string() + ": is missing; expected the run's evaluations");
  std::vector<std::string> lines = split_lines(*text);
  std::erase_if(lines, [](const std::string& line) { return line.empty() || line.front() == '#'; });
  return lines;
}

std::optional<FileContents> ReusableRuns::files_for(const Run& run) {
  if (run.recording.trace || run.fingerprint.empty()) return {};
  if (!by_fingerprint_) by_fingerprint_ = simulated_runs_by_fingerprint(results_);
  const auto [first, last] = by_fingerprint_->equal_range(run.fingerprint);
  for (auto place = first; place != last; ++place) try {
      const fs::path& folder = place->second;
      FileContents files = renamed(files_in(folder), run, fs::relative(folder, results_).generic_string());
      if (!files.empty()) return files;
    } catch (const std::exception&) {
    }
  return {};
}

const char* tuning_file(bool mpi) { return mpi ? "tuning-mpi.json" : "tuning.json"; }

std::size_t TunedMethod::trials() const {
  std::size_t number = 0;
  for (const TriedSetting& setting : settings) number += setting.trials.size();
  return number;
}

std::size_t TunedMethod::reached(const TriedSetting& setting) const {
  return static_cast<std::size_t>(std::ranges::count_if(setting.trials, [&](const TunedTrial& trial) {
    return trial.value && !trial.missed_by && (!horizon || *trial.value <= *horizon);
  }));
}

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<TunedTrial, AnyJson>& trial) {
  members("seed", trial.seed);
  members("hash", trial.hash);
  members("status", trial.status);
  members("value", trial.value);
  members.if_any("missed_by", trial.missed_by);
}

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<TriedSetting, AnyJson>& setting) {
  list_names(members.in("values"), setting.values);
  members("mean", setting.mean);
  members("trials", setting.trials);
}

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<TunedMethod, AnyJson>& method) {
  members("method", method.method);
  list_names(members.in("point"), method.point);
  if constexpr (!members.reads) {
    const TriedSetting* const chosen = method.chosen ? &method.settings[*method.chosen] : nullptr;
    const auto values = members.in("chosen");  // null without one
    if (chosen) list_names(values, chosen->values);
    members.json["mean"] = chosen ? chosen->mean : std::nullopt;
    members.json["number_of_trials"] = method.trials();
  }
  members.if_any("horizon", method.horizon);
  members("extended", method.extended);
  members("at_edge", method.at_edge);
  members("settings", method.settings);
  if constexpr (members.reads)
    for (std::size_t i = 0; i < method.settings.size(); ++i)
      if (members.json.at("settings")[i].at("values") == members.json.at("chosen")) method.chosen = i;
}

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<Tuning, AnyJson>& tuning) {
  members("experiment", tuning.experiment);
  members("measure", tuning.measure);
  members("seeds", tuning.seeds);
  list_names(members.in("where"), tuning.where);
  members("methods", tuning.methods);
}

std::string to_json(const Tuning& tuning) {
  Json json{{"schema_version", tuning_schema_version}};
  list_members(JsonMembers<Json>{json}, tuning);
  return with_digest(json);
}

std::optional<Tuning> tuning_from_json(const std::string& text) try {
  const Json json = Json::parse(text);
  if (json.at("schema_version") != tuning_schema_version || !is_as_written(text, json, "methods")) return {};
  return json.get<Tuning>();
} catch (const std::exception&) {
  return {};
}

namespace {

// A row, and everything that distinguishes it from other rows.
struct Group {
  std::size_t method_index = 0;
  std::size_t point_index = 0;
  KeyValues sweep;
  std::map<std::string, std::string> of_method;
  ResultRow row;

  auto key() const { return std::tuple(row.method, sweep, of_method, row.point, row.on_wall_clock); }
};

bool is_part(const KeyValues& part, const KeyValues& whole) {
  return std::ranges::all_of(part, [&](const auto& value) { return std::ranges::find(whole, value) != whole.end(); });
}

using GroupOfRun = std::pair<Group, const FoundRun*>;

// The swept keys and values that name the group's point. A run made without the sweep, but at one of its points, gets
// that point's names. If none or several points match, the group keeps its own names.
KeyValues point_names(const Group& group, const std::vector<GroupOfRun>& all) {
  std::set<KeyValues> longer;
  for (const auto& [other, run] : all)
    if (other.sweep.size() > group.sweep.size() && is_part(group.sweep, other.sweep) &&
        other.row.method == group.row.method && other.of_method == group.of_method &&
        other.row.point == group.row.point)
      longer.insert(other.sweep);
  return longer.size() == 1 ? *longer.begin() : group.sweep;
}

// The order of swept values: numbers by size, texts in the order of the sweep, or alphabetically if it is unknown.
class SweepOrder {
 public:
  explicit SweepOrder(const std::vector<Group>& groups) {
    for (const Group& group : groups)
      for (const auto& value : group.sweep) {
        const auto [known, is_new] = first_points_.emplace(value, group.point_index);
        if (!is_new) known->second = std::min(known->second, group.point_index);
      }
  }

  bool operator()(const KeyValues& a, const KeyValues& b) const {
    return std::ranges::lexicographical_compare(a, b, [this](const auto& x, const auto& y) {
      return x.first != y.first ? x.first < y.first : comes_before(x, y);
    });
  }

 private:
  using Value = KeyValues::value_type;

  bool comes_before(const Value& a, const Value& b) const {
    const auto x = number_in(a.second), y = number_in(b.second);
    if (x && y && *x != *y) return *x < *y;
    if (x.has_value() != y.has_value()) return x.has_value();
    return std::pair(first_points_.at(a), a.second) < std::pair(first_points_.at(b), b.second);
  }

  std::map<Value, std::size_t> first_points_;  // the first point_index with each value
};

// For a label: the keys of `own` whose values differ from those of some others, with these values.
std::string differences(const Leaves& own, const std::vector<const Leaves*>& others) {
  std::string text;
  for (const auto& leaf : own) {
    const auto differs = [&](const Leaves* other) {
      const auto found = other->find(leaf.first);
      return found == other->end() || found->second != leaf.second;
    };
    if (std::ranges::any_of(others, differs)) text += fmt::format(", {} = {}", leaf.first, leaf.second);
  }
  return text;
}

// Appends keys with differing values to labels that several rows share, and to labels of rows made outside the sweep.
void tell_apart(std::vector<Group>& groups) {
  std::vector<std::string> additions;
  for (const Group& group : groups) {
    std::vector<const Leaves*> points, of_methods;
    for (const Group& other : groups) {
      const bool is_alike = other.row.label == group.row.label ||
                            (other.row.method == group.row.method && other.sweep.size() > group.sweep.size() &&
                             is_part(group.sweep, other.sweep));
      if (!is_alike) continue;
      points.push_back(&other.row.point);
      of_methods.push_back(&other.of_method);
    }
    std::string& addition = additions.emplace_back();
    if (points.size() < 2) continue;
    addition = differences(group.row.point, points) + differences(group.of_method, of_methods);
    if (group.row.on_wall_clock) addition += ", under MPI";
  }
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].row.label += additions[i];
}

// Whether the key may not apply to some methods, because they can override it or use another model or data set.
bool may_not_concern_all(const std::string& key) {
  return key.starts_with("training.") || key.starts_with("models.") || key.starts_with("datasets.");
}

}  // namespace

std::vector<TimeToReach> times_to_target(std::span<const RunSummary> runs) {
  std::vector<TimeToReach> times;
  for (const RunSummary& run : runs)
    if (run.time_to_target) times.push_back(time_to_reach(run));
  return times;
}

Pairs pairs_of(const ResultRow& row, const ResultRow& other) {
  Pairs pairs;
  for (const RunSummary& run : row.runs) {
    const auto found = std::ranges::find(other.runs, run.seed, &RunSummary::seed);
    if (found == other.runs.end()) continue;
    pairs.own.push_back(&run);
    pairs.other.push_back(&*found);
  }
  return pairs;
}

std::vector<std::string> differing_keys(const ResultRow& a, const ResultRow& b) {
  std::vector<std::string> keys;
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)})
    for (const auto& [key, value] : one->point) {
      const auto found = other->point.find(key);
      const bool differs =
          found == other->point.end() ? !may_not_concern_all(key) : one == &a && found->second != value;
      if (differs) keys.push_back(key);
    }
  return keys;
}

KeyValues common_point(const ResultRow& row) {
  KeyValues point = row.runs.front().sweep;
  std::erase_if(point, [](const auto& value) { return value.first.starts_with("methods."); });
  return point;
}

bool is_at_point_of(const ResultRow& row, const ResultRow& there, std::span<const ResultRow* const> rows) {
  const KeyValues own = common_point(row), point = common_point(there);
  if (!is_part(own, point)) return false;
  // If another row of this method is at the point by its names, the missing keys apply to the method.
  const auto is_rival = [&](const ResultRow* other) {
    return other != &row && other->method == row.method && common_point(*other) == point;
  };
  if (std::ranges::any_of(rows, is_rival)) return false;
  const std::vector<std::string> differing = differing_keys(row, there);
  if (differing.empty()) return true;
  // If not, a value in the file may equal the method's override, so `row` may still be at a point of the sweep.
  const auto stands_at = [&](const ResultRow* other) {
    return common_point(*other).size() == point.size() && differing_keys(row, *other).empty();
  };
  return std::ranges::all_of(differing, may_not_concern_all) && std::ranges::any_of(rows, stands_at);
}

std::vector<ResultRow> result_rows(std::span<const FoundRun> runs) {
  std::vector<Keyed> members;
  for (const FoundRun& run : runs) members.emplace_back(run.summary.method, &run.configuration);
  const std::vector<std::string> varied = varied_keys(members);
  std::vector<GroupOfRun> of_runs;
  for (const FoundRun& run : runs) {
    if (run.summary.status != RunStatus::finished) continue;
    Group group{
        .method_index = run.summary.method_index,
        .point_index = run.summary.point_index,
        .sweep = run.summary.sweep,
        .of_method = run.of_method,
        .row = {
            .label = {}, .method = run.summary.method, .on_wall_clock = run.on_wall_clock, .point = {}, .runs = {}}};
    for (const std::string& key : varied)
      if (const auto found = run.configuration.find(key); found != run.configuration.end())
        group.row.point.insert(*found);
    of_runs.emplace_back(std::move(group), &run);
  }
  std::vector<Group> groups;
  std::map<decltype(std::declval<Group>().key()), std::size_t> places;
  for (auto [group, run] : of_runs) {  // a copy, because point_names needs the sweeps as they were
    group.sweep = point_names(group, of_runs);
    if (group.sweep != run->summary.sweep)
      group.point_index = std::numeric_limits<std::size_t>::max();  // the run comes from another file
    group.row.label = run_label(group.row.method, group.sweep);
    const auto [known, is_new] = places.emplace(group.key(), groups.size());
    if (is_new) groups.push_back(group);
    groups[known->second].point_index = std::min(groups[known->second].point_index, group.point_index);
    ResultRow& row = groups[known->second].row;
    const auto after = std::ranges::upper_bound(row.runs, run->summary.seed, {}, &RunSummary::seed);
    const auto index = after - row.runs.begin();
    row.directories.insert(row.directories.begin() + index, run->directory);
    row.runs.insert(after, run->summary)->sweep = group.sweep;
  }
  tell_apart(groups);
  std::ranges::stable_sort(groups, [comes_before = SweepOrder(groups)](const Group& a, const Group& b) {
    return a.method_index != b.method_index ? a.method_index < b.method_index : comes_before(a.sweep, b.sweep);
  });
  std::vector<ResultRow> rows;
  for (Group& group : groups) rows.push_back(std::move(group.row));
  return rows;
}

const ResultRow* row_to_compare_with(std::span<const ResultRow> rows, const ResultRow& row,
                                     const std::string& against) {
  if (const auto named = std::ranges::find(rows, against, &ResultRow::label);
      named != rows.end() && named->method != against)
    return &*named;
  std::vector<Keyed> members;
  for (const ResultRow& other : rows)
    if (other.method == against) members.emplace_back(against, &other.point);
  const std::vector<std::string> keys = varied_keys(members);
  const auto value_at = [](const ResultRow& other, const std::string& key) {
    return other.point.contains(key) ? other.point.at(key) : std::string();
  };
  std::vector<const ResultRow*> found;
  for (const ResultRow& other : rows) {
    if (other.method != against || other.on_wall_clock != row.on_wall_clock) continue;
    const auto is_same = [&](const std::string& key) { return value_at(other, key) == value_at(row, key); };
    if (std::ranges::all_of(keys, is_same)) found.push_back(&other);
  }
  if (found.size() < 2) return found.empty() ? nullptr : found.front();
  std::string labels;
  for (const ResultRow* other : found) labels += fmt::format("{}\"{}\"", labels.empty() ? "" : ", ", other->label);
  throw std::invalid_argument(fmt::format("\"{}\" is ambiguous: it can mean {}; name one of them", against, labels));
}

}  // namespace syncopate
