// Finds runs of one or several experiments by their directories, and reads them and the record of their tuning.
#pragma once

#include <set>

#include "results/run_directory.hpp"
#include "results/summary.hpp"
#include "workers/base/files.hpp"

namespace syncopate {

// Files of a run that is in progress or was interrupted; the files alone do not show which.
struct UnfinishedFiles {
  bool has_checkpoint = false;  // false: only hidden files, or ranks' parts of a checkpoint
  std::filesystem::file_time_type written = std::filesystem::file_time_type::min();
};

struct ExperimentFolder {
  std::filesystem::path directory{};
  std::vector<std::filesystem::path> runs{};                      // directories of finished runs and trials
  std::map<std::filesystem::path, UnfinishedFiles> unfinished{};  // by the directory that the run will have
  std::vector<std::string> faults{};                              // one line per unreadable directory
};

// Experiments at or below the directory, sorted by path. These are folders with runs, with files of unfinished runs, or
// with the folder .shared. Also includes empty folders beside an experiment, since a starting process creates one.
std::vector<ExperimentFolder> experiment_folders(const std::filesystem::path& directory);

// The summary in the directory if its configuration is that of `run`, even if the run did not finish.
std::optional<RunSummary> summary_of(const std::filesystem::path& directory, const Run& run);

// The summary, but only if the run also finished, has all requested files, and none of them is damaged.
std::optional<RunSummary> finished_before(const std::filesystem::path& directory, const Run& run);

// Like finished_before, for a trial of tuning, which may also have diverged: divergence is a result, too.
std::optional<RunSummary> tried_before(const std::filesystem::path& directory, const Run& run);

// Whether a process of this call (FailedAttempts) made the run in the directory.
bool was_made_by(const std::filesystem::path& directory, const std::string& call);

struct FoundRun {
  std::filesystem::path directory;
  RunSummary summary;
  bool on_wall_clock = false;  // made under MPI
  bool is_trial = false;       // a trial of tuning
  // Keys of config.toml that affect results, such as "cluster.workers" -> "16", with values as TOML. Excludes the seed,
  // methods, recording, and keys that the method overrides.
  std::map<std::string, std::string> configuration;
  std::map<std::string, std::string> of_method;  // keys of its method: "threshold_s" -> "0.05"
};

// Rules for which runs count in tables, claims, exports and the status. Figures use the same rules (plots/runs.py,
// plots/comparison.py):
// - A run whose directory is not named after its seed and hash is a fault, and so is a directory with a run's files and
//   another kind of name, such as "seed=1-20c62185.bak". The message names this place and the expected one. Links and
//   hidden directories are ignored.
// - Two runs with the same hash, method and swept values are a fault, since one is a copy. The message names both.
// - Runs with one hash and different numbers of swept values (a sweep, and later one of its points alone) count as one
//   run, which gets the name with the most values.
// - If runs differ only in the version of the results, the newest one counts.

// All finished runs at or below the directory, sorted by path. Excludes common phases of other runs. Excludes trials,
// unless they are requested or the directory is in their folder. Throws ResultsDirectoryFault, which lists all faults:
// no such directory, no runs, a damaged or missing file, another schema version, a misplaced run, a copy.
std::vector<FoundRun> find_runs(const std::filesystem::path& directory, bool with_trials = false);

// Simulated runs with these hashes at or below the directory; there may be none. Other runs are not read, so their
// faults do not count.
std::vector<FoundRun> find_runs_of(const std::filesystem::path& directory, const std::set<std::string>& hashes);

// Runs that are known from their rows in a table alone: those of `runs` that finished by runs.csv, as `export` writes
// it. A row is a run's by its hash, else by its method, seed and swept values; summaries have no numbers but
// `tabled`. Throws ResultsDirectoryFault if the file is no such table.
std::vector<FoundRun> runs_of_table(const std::filesystem::path& runs_csv, std::span<const Run> runs);

// Runs in these directories by the first three rules above, and one line per fault. Contains neither a run with a copy
// nor the copy.
struct RunsAndFaults {
  std::vector<FoundRun> runs{};
  std::vector<std::string> faults{};
  std::vector<std::string> faults_of_common_phases{};  // no table needs these phases, because the runs that continue
                                                       // them could be read
};
RunsAndFaults read_runs(std::span<const std::filesystem::path> directories, const std::filesystem::path& above);

// Runs by experiment, in the order of first appearance.
std::vector<std::vector<FoundRun>> by_experiment(std::vector<FoundRun> runs);

// Sorted keys whose values differ within a group, or that only part of a group has. A member is a pair of its group's
// name and a pointer to its keys.
using Keyed = std::pair<std::string, const std::map<std::string, std::string>*>;
std::vector<std::string> varied_keys(std::span<const Keyed> members);

// The keys of the configuration, without the method and the seed, that vary among runs of one method.
std::vector<std::string> varied_keys(std::span<const FoundRun> runs);

// Lines of a run's metrics.csv without comments; the first is the heading. Throws std::runtime_error if the file is
// unreadable.
std::vector<std::string> evaluation_lines(const std::filesystem::path& directory);

// A row of a CSV file by the columns' headings.
using CsvRow = std::map<std::string, std::string, std::less<>>;
std::string field(const CsvRow& row, std::string_view column);  // empty if there is no such column

// The run's evaluations: rows of metrics.csv in its directory or, for a run that is known from a table alone, its rows
// of evaluations.csv beside the table. Throws std::runtime_error if the file is unreadable.
std::vector<CsvRow> evaluations_of(const std::filesystem::path& directory, const RunSummary& run);

// Finds runs of other experiments in the same results directory that made the same computation.
class ReusableRuns {
 public:
  explicit ReusableRuns(std::filesystem::path results) : results_(std::move(results)) {}

  // Files of a finished, simulated run that has the same Run::fingerprint and recorded everything that `run` asks for.
  // Names in the files are changed to those of `run`, and metadata.json gets the key `copied_from`. nullopt if there is
  // no such run, or if `run` asks for a trace, which contains the names of its own run. The first call reads all
  // directories and ignores unreadable ones.
  std::optional<FileContents> files_for(const Run& run);

 private:
  std::filesystem::path results_;
  std::optional<std::multimap<std::string, std::filesystem::path>> by_fingerprint_{};
};

// tuning.json in an experiment's directory: the trials of each method, and the chosen setting.
inline constexpr int tuning_schema_version = 1;

// The file's name: tuning.json for simulated trials, another one for trials under MPI.
const char* tuning_file(bool mpi);

struct TunedTrial {
  std::uint64_t seed = 0;
  std::string hash;
  std::string status;             // status of the trial's run
  std::optional<double> value{};  // value of the measure; a trial without a value ranks last
  // If the trial missed its target: by how much, in the target's unit. `value` is then the time until its end.
  std::optional<double> missed_by{};
};

struct TriedSetting {
  std::vector<std::pair<std::string, std::string>> values{};  // key and value
  std::optional<double> mean{};  // mean over the seeds, up to the method's horizon; none if a trial has no value
  std::vector<TunedTrial> trials{};
};

struct TunedMethod {
  std::string method{};
  std::vector<std::pair<std::string, std::string>> point{};  // sweep point, if each point was tuned separately
  std::optional<std::size_t> chosen{};                       // index of the setting; none if no setting has a mean
  // If trials missed their target: the time to which means are restricted (RestrictedTimes).
  std::optional<double> horizon{};
  std::vector<std::string> extended{};  // keys whose grid was extended
  std::vector<std::string> at_edge{};   // keys whose chosen value is at an edge of the grid
  std::vector<TriedSetting> settings{};

  std::size_t trials() const;
  // The number of the setting's trials that reached the target by the horizon.
  std::size_t reached(const TriedSetting& setting) const;
};

struct Tuning {
  std::string experiment{};
  std::string measure{};
  std::vector<std::uint64_t> seeds{};
  std::vector<std::pair<std::string, std::string>> where{};  // the sweep point at which all methods were tuned
  std::vector<TunedMethod> methods{};
};

std::string to_json(const Tuning& tuning);

// nullopt if the text has another schema version or is damaged.
std::optional<Tuning> tuning_from_json(const std::string& text);

}  // namespace syncopate
