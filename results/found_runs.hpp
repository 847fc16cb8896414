// Runs that are there: those of one or several experiments, found by their directories.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "results/run.hpp"
#include "results/run_directory.hpp"
#include "results/summary.hpp"
#include "workers/base/files.hpp"

namespace syncopate {

// An open file or directory of the system, for what streams cannot do: create it alone, put it on the disk.
// All throw std::filesystem::filesystem_error.
class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags);  // those of open()
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void write(std::string_view contents) const;
  // Some file systems cannot do so for directories (EINVAL), and need not.
  void sync() const;
  // Waits until no other process, or other Descriptor of this one, has the lock. It ends with this object, and with the
  // process however that ends. False where the file system has no locks of directories (NFS).
  bool lock() const;

 private:
  std::filesystem::path path_;
  int number_;
};

// What lies below a results directory, by experiments: runs that have ended, and signs of those that have not.
// Of a run that is under way, or was left unfinished: nothing on the disk says which.
struct UnfinishedFiles {
  bool has_checkpoint = false;  // else files that have not got their names yet
  std::filesystem::file_time_type written = std::filesystem::file_time_type::min();
};

struct ExperimentFolder {
  std::filesystem::path directory{};
  std::vector<std::filesystem::path> runs{};                      // their directories, trials too
  std::map<std::filesystem::path, UnfinishedFiles> unfinished{};  // by the directory that the run will have
  std::vector<std::string> faults{};                              // what cannot be looked into, a line each
};

// seed=<number>-<hash>, of a run's directory.
bool is_name_of_run(const std::string& name);

// A directory that has a run's files and another name, such as "seed=1-20c62185.bak": a copy, or a run renamed.
// Links and what is hidden or unfinished are none.
bool is_misnamed_run(const std::filesystem::path& directory);

// Experiments at or below the directory, by their paths: those with runs, with a sign of one, or that were shared. Also
// empty folders that are in an experiment's place, as where a process has just begun.
std::vector<ExperimentFolder> experiment_folders(const std::filesystem::path& directory);

// The results of a finished run, read from its directory, so that it need not be repeated.
// The summary in the directory, if it is one of this configuration, however the run ended.
std::optional<RunSummary> summary_of(const std::filesystem::path& directory, const Run& run);

// The same, if the run is finished, has all files that are asked for, and these are as they were written.
std::optional<RunSummary> finished_before(const std::filesystem::path& directory, const Run& run);

// The same of a trial: one that has diverged has told all that it can.
std::optional<RunSummary> tried_before(const std::filesystem::path& directory, const Run& run);

// Whether the run in the directory was made by the processes of this call (FailedAttempts).
bool was_made_by(const std::filesystem::path& directory, const std::string& call);

// What a formula says of a run's time, as it stands in summary.json and in what `predict --json` prints.
Json json_of(const FormulaTime& formula);           // of summary.json
Json json_with_errors(const FormulaTime& formula);  // of `predict --json`: the same and standard errors

Json json_of_error(double error);  // null where nothing was drawn

// What json_of wrote. Throws nlohmann's exceptions for what is no formula.
FormulaTime formula_of(const Json& json);

struct FoundRun {
  std::filesystem::path directory;
  RunSummary summary;
  bool on_wall_clock = false;  // made under MPI
  bool is_trial = false;       // of tuning
  // Of config.toml, what decides results, but for seed, methods, what is only recorded, and what the run's method has
  // otherwise: "cluster.workers" -> "16", values as TOML.
  std::map<std::string, std::string> configuration;
  std::map<std::string, std::string> of_method;  // the same of its method: "threshold_s" -> "0.05"
};

// Which runs count is decided here, for tables, claims, exports and the status; figures have the same rules
// (plots/runs.py, plots/comparison.py):
// - A run whose directory is not named after its seed and its hash is a fault, which names both places.
//   So is a directory with a run's files and a name that no run has; not a link, nor what is hidden or unfinished.
// - Two runs of one hash under the same method and swept values are a fault, which names both: one is a copy.
// - A hash under several names of swept values (a sweep, and later one of its points by itself) is one run. It has the
//   name with most values.
// - Of runs that differ in nothing but the version of the results the newest counts.

// All runs at or below the directory that have ended, in the order of their names, without common phases that other
// runs start from, and without trials, unless they are asked for or the directory is in their folder. Throws
// ResultsDirectoryFault, with all that is wrong: no such directory, no runs in it, a damaged file, a file that is
// missing, a summary of another schema version, a run in a place that is not its own, a copy.
std::vector<FoundRun> find_runs(const std::filesystem::path& directory, bool with_trials = false);

// The simulated runs with these hashes at or below the directory: those of an experiment file. Other runs are not
// read, so that nothing that is wrong with them is a fault here. None may be there.
std::vector<FoundRun> find_runs_of(const std::filesystem::path& directory, const std::set<std::string>& hashes);

// The runs in these directories by the first three rules. `faults`: what is wrong, a line each; the other runs are
// there. Of a run and its copy none is there.
struct RunsAndFaults {
  std::vector<FoundRun> runs{};
  std::vector<std::string> faults{};
  std::vector<std::string> faults_of_common_phases{};  // which no table needs: their runs have been read
};
RunsAndFaults read_runs(std::span<const std::filesystem::path> directories, const std::filesystem::path& above);

// By the names of their experiments, in the order in which these are first met.
std::vector<std::vector<FoundRun>> by_experiment(std::vector<FoundRun> runs);

// Keys whose values differ among runs of one method, in the order of the keys: what varies beside method and seed.
std::vector<std::string> varied_keys(std::span<const FoundRun> runs);

// Runs of other experiments in the same directory of results: what two experiments compute alike is computed once.
class RunsElsewhere {
 public:
  explicit RunsElsewhere(std::filesystem::path results) : results_(std::move(results)) {}

  // The files of a finished, simulated run of the same course (Run::course) with all that is to be recorded of `run`,
  // as they belong into the directory of `run`: under its names, with `copied_from` in metadata.json. Nothing where
  // there is none, and where a trace is asked for, which has the names of its own run. The directories are looked
  // through at the first call; what cannot be read there is passed over.
  std::optional<FileContents> files_for(const Run& run);

 private:
  void look_through();

  std::filesystem::path results_;
  std::optional<std::multimap<std::string, std::filesystem::path>> by_course_{};
};

// tuning.json beside an experiment's runs: what each method was tried with, and what was chosen.
inline constexpr int tuning_schema_version = 1;

// The file of trials on virtual time, or under MPI.
const char* tuning_file(bool mpi);

struct TunedTrial {
  std::uint64_t seed = 0;
  std::string hash;
  std::string status;             // as that of a run
  std::optional<double> value{};  // the measure; none: the trial has none, and counts as the worst
  // Of a trial that missed its target, by how much, in the target's unit; `value` is then until its end. None: it
  // reached the target, or the measure goes by none.
  std::optional<double> missed_by{};
};

struct TriedSetting {
  std::vector<std::pair<std::string, std::string>> values{};  // key and value
  std::optional<double> mean{};  // over the seeds, up to the method's horizon; none: a trial has no value
  std::vector<TunedTrial> trials{};
};

struct TunedMethod {
  std::string method{};
  std::vector<std::pair<std::string, std::string>> point{};  // of what varies: where it was tuned by itself
  std::optional<std::size_t> chosen{};                       // of the settings; none: no setting has a mean
  // Where trials missed their target: up to when all of them are known. Means are restricted to it.
  std::optional<double> horizon{};
  std::vector<std::string> extended{};  // keys whose grid was extended
  std::vector<std::string> at_edge{};   // keys that are at an edge of the grid in what was chosen
  std::vector<TriedSetting> settings{};

  std::size_t trials() const;
  // Of a setting, those that reached the target by the horizon.
  std::size_t reached(const TriedSetting& setting) const;
};

struct Tuning {
  std::string experiment{};
  std::string measure{};
  std::vector<std::uint64_t> seeds{};
  std::vector<std::pair<std::string, std::string>> where{};  // at which values of what varies, for all of them
  std::vector<TunedMethod> methods{};
};

std::string to_json(const Tuning& tuning);

// Nothing if the text is not of this schema version, or is no longer as it was written.
std::optional<Tuning> tuning_from_json(const std::string& text);

}  // namespace syncopate
