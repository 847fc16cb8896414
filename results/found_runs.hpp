// Finds the runs of one or several experiments by their directories. Reads the runs, and the record of their tuning.
#pragma once

#include <algorithm>
#include <ranges>
#include <set>

#include "results/run_directory.hpp"
#include "results/summary.hpp"
#include "workers/base/files.hpp"

namespace syncopate {

// Files of a run that is in progress or was interrupted. The files alone do not show which of these is the case.
struct UnfinishedFiles {
  bool has_checkpoint = false;  // false: there are only hidden files, or ranks' parts of a checkpoint
  std::filesystem::file_time_type written = std::filesystem::file_time_type::min();
};

struct ExperimentFolder {
  std::filesystem::path directory{};
  std::vector<std::filesystem::path> runs{};                      // directories of finished runs and trials
  std::map<std::filesystem::path, UnfinishedFiles> unfinished{};  // by the directory that the run will have
  std::vector<std::string> faults{};                              // one line for each unreadable directory
};

// Experiments at or below the directory, sorted by path. These are folders with runs, with files of unfinished runs, or
// with the folder .shared. Empty folders beside an experiment also count, since a process that starts creates one.
std::vector<ExperimentFolder> experiment_folders(const std::filesystem::path& directory);

// The summary in the directory if its run has this hash, or the configuration of `run`, even if it did not finish.
std::optional<RunSummary> summary_of(const std::filesystem::path& directory, const std::string& hash);
std::optional<RunSummary> summary_of(const std::filesystem::path& directory, const Run& run);

// Like summary_of, but only if that run finished, has all files that `run` asks for, and none of them is damaged. A
// trial of tuning may also have diverged, because divergence is a result of a trial.
std::optional<RunSummary> finished_before(const std::filesystem::path& directory, const Run& run);

// Whether a process of this call (FailedAttempts) made the run that is in the directory.
bool was_made_by(const std::filesystem::path& directory, const std::string& call);

struct FoundRun {
  std::filesystem::path directory;
  RunSummary summary;
  bool on_wall_clock = false;  // made under MPI
  bool is_trial = false;       // a trial of tuning
  // Keys of config.toml that affect results, such as "cluster.workers" -> "16", with values as TOML. Excludes the seed,
  // methods, recording, and keys that the run's method overrides.
  std::map<std::string, std::string> configuration;
  std::map<std::string, std::string> of_method;  // keys of the run's method: "threshold_s" -> "0.05"
};

// Rules for which runs count in tables, claims, exports and the status. Figures use the same rules (plots/runs.py,
// plots/comparison.py):
// - A run whose directory is not named after its seed and hash is a fault. A directory with a run's files and another
//   kind of name, such as "seed=1-20c62185.bak", is one, too. The message names this directory and the right one. Links
//   and hidden directories are ignored.
// - Two runs with the same hash and swept values are a fault, since one is a copy. The message names both.
// - Runs with the same hash may have different numbers of swept values: a sweep was run, and later one of its points
//   alone. They count as one run, which is named by the most values.
// - If runs differ only in the version of the results, the newest one counts.

// All finished runs at or below the directory, sorted by path. Excludes common phases of other runs. Excludes trials,
// unless they are requested or the directory is in their folder. Throws ResultsDirectoryFault, which lists all faults:
// no such directory, no runs, a damaged or missing file, another schema version, a misplaced run, a copy.
std::vector<FoundRun> find_runs(const std::filesystem::path& directory, bool with_trials = false);

// Simulated runs with these hashes at or below the directory; there may be none. Ignores other runs and their faults.
std::vector<FoundRun> find_runs_of(const std::filesystem::path& directory, const std::set<std::string>& hashes);

// Whether the text `written` means this swept value: it is the same text, this text as TOML, or an equal number.
bool is_same_value(const std::string& value, const std::string& written);

// The column of a swept key in runs.csv: "method.threshold_s" for methods.DropCompute.threshold_s, since the method has
// its own column.
std::string column_of(const std::string& swept_key);

// Runs without files, known only from a table: those of `runs` that finished according to runs.csv, which `export`
// writes. A row belongs to the run with its hash, otherwise with its method, seed and swept values. Numbers in the
// summaries are only in `tabled`. Throws ResultsDirectoryFault if the file is no such table.
std::vector<FoundRun> runs_of_table(const std::filesystem::path& runs_csv, std::span<const Run> runs);

// Runs in these directories by the first three rules above, and one line per fault. Contains no run that has a copy.
struct RunsAndFaults {
  std::vector<FoundRun> runs{};
  std::vector<std::string> faults{};
  std::vector<std::string> faults_of_common_phases{};  // not needed: runs that continue the phases could be read
};
RunsAndFaults read_runs(std::span<const std::filesystem::path> directories, const std::filesystem::path& above);

// Pairs of a key and its elements, in the order of the keys' first appearances.
template <typename Elements, typename KeyOf>
auto grouped_by(const KeyOf& key_of, Elements&& elements) {
  using Key = std::remove_cvref_t<decltype(key_of(*std::ranges::begin(elements)))>;
  using Group = std::pair<Key, std::vector<std::ranges::range_value_t<Elements>>>;
  std::vector<Group> groups;
  for (const auto& element : elements) {
    const Key key = key_of(element);
    auto group = std::ranges::find(groups, key, &Group::first);
    if (group == groups.end()) group = groups.insert(groups.end(), {key, {}});
    group->second.push_back(element);
  }
  return groups;
}

// Sorted keys whose values differ within a group, or that only part of a group has. A member is a pair of its group's
// name and a pointer to the member's keys.
using Keyed = std::pair<std::string, const std::map<std::string, std::string>*>;
std::vector<std::string> varied_keys(std::span<const Keyed> members);

// Lines of a run's metrics.csv except comments. The first one is the heading. Throws std::runtime_error if the file is
// unreadable.
std::vector<std::string> evaluation_lines(const std::filesystem::path& directory);

// A row of a CSV file: its fields by the headings of their columns.
using CsvRow = std::map<std::string, std::string, std::less<>>;
std::string field(const CsvRow& row, std::string_view column);  // empty if there is no such column

// The run's evaluations: the rows of metrics.csv in its directory or, for a run that is known from a table alone, its
// rows of evaluations.csv beside the table. Throws std::runtime_error if the file is unreadable.
std::vector<CsvRow> evaluations_of(const std::filesystem::path& directory, const RunSummary& run);

// Finds runs of other experiments in the same results directory that did the same computation.
class ReusableRuns {
 public:
  explicit ReusableRuns(std::filesystem::path results) : results_(std::move(results)) {}

  // The files of a finished, simulated run that has the Run::fingerprint of `run` and recorded everything that `run`
  // asks for. Names in the files are changed to those of `run`, and metadata.json gets the key `copied_from`. nullopt
  // if there is no such run, or if `run` asks for a trace, which contains the names of its own run. The first call
  // reads all directories and ignores unreadable ones.
  std::optional<FileContents> files_for(const Run& run);

 private:
  std::filesystem::path results_;
  std::optional<std::multimap<std::string, std::filesystem::path>> by_fingerprint_{};
};

// tuning.json in an experiment's directory: the trials of each method, and the chosen setting.
inline constexpr int tuning_schema_version = 1;

// The file's name: tuning.json for simulated trials, another name for trials under MPI.
const char* tuning_file(bool mpi);

struct TunedTrial {
  std::uint64_t seed = 0;
  std::string hash;
  std::string status;             // status of the run
  std::optional<double> value{};  // value of the measure; a trial without one ranks last
  // By how much the trial missed its target, in the target's unit. `value` is then the time until the trial's end.
  std::optional<double> missed_by{};
};

struct TriedSetting {
  KeyValues values{};            // key and value
  std::optional<double> mean{};  // over the seeds, up to the method's horizon; none if a trial has no value
  std::vector<TunedTrial> trials{};
};

struct TunedMethod {
  std::string method{};
  KeyValues point{};                    // the sweep's point, if points were tuned separately
  std::optional<std::size_t> chosen{};  // index in `settings`; none if no setting has a mean
  // The time to which means are restricted (RestrictedTimes), if trials missed their target.
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
  KeyValues where{};  // the sweep's point at which all methods were tuned
  std::vector<TunedMethod> methods{};
};

std::string to_json(const Tuning& tuning);

// nullopt if the text has another schema version or is damaged.
std::optional<Tuning> tuning_from_json(const std::string& text);

// A row of a table: a method at one point of a sweep, with its runs over seeds.
struct ResultRow {
  std::string label;  // method and swept values; unique among rows
  std::string method;
  bool on_wall_clock = false;
  std::map<std::string, std::string> point;          // keys that vary among runs of one method, and their values
  std::vector<RunSummary> runs;                      // finished runs, ascending in seed
  std::vector<std::filesystem::path> directories{};  // directories of these runs
};

// The rows of one experiment's runs. They are sorted by methods in the order of the file, then by swept values: numbers
// ascending, texts in the order of the sweep. A method without a finished run has no row.
std::vector<ResultRow> result_rows(std::span<const FoundRun> runs);

// Times to the target of those runs that have a target.
std::vector<TimeToReach> times_to_target(std::span<const RunSummary> runs);

// The runs of two rows with common seeds: own[i] and other[i] have the same seed.
struct Pairs {
  std::vector<const RunSummary*> own, other;
};
Pairs pairs_of(const ResultRow& row, const ResultRow& other);

// The row's values of the keys that are swept for all methods.
KeyValues common_point(const ResultRow& row);

// Keys in which the points of two rows differ. Leaves out a key of [training], models or data sets that only one of the
// rows has, because it does not apply to the other row's method.
std::vector<std::string> differing_keys(const ResultRow& a, const ResultRow& b);

// Whether `row`, which lacks some swept keys, is at the point of the row `there`, which has all of them. This is the
// case if the missing keys do not apply to the method of `row`, and all other keys have the same values. Otherwise
// `row` was made outside the sweep. `rows`: all rows of both kinds. Figures use the same rule (plots/comparison.py).
bool is_at_point_of(const ResultRow& row, const ResultRow& there, std::span<const ResultRow* const> rows);

// The row with the method or label `against` at the point of `row`: it has the same clock and, for the keys that vary
// for `against`, the same values. Null if there is none. Throws std::invalid_argument if several rows match.
const ResultRow* row_to_compare_with(std::span<const ResultRow> rows, const ResultRow& row, const std::string& against);

}  // namespace syncopate
