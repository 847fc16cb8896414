// Finished runs of one or several experiments, found by their directories, and the record of their tuning.
#pragma once

#include <set>

#include "results/run_directory.hpp"
#include "results/summary.hpp"
#include "workers/base/files.hpp"

namespace syncopate {

// Files of a run that is in progress or was left unfinished; the files alone do not show which.
struct UnfinishedFiles {
  bool has_checkpoint = false;  // false: only files that still have hidden names
  std::filesystem::file_time_type written = std::filesystem::file_time_type::min();
};

struct ExperimentFolder {
  std::filesystem::path directory{};
  std::vector<std::filesystem::path> runs{};                      // directories of finished runs and trials
  std::map<std::filesystem::path, UnfinishedFiles> unfinished{};  // by the directory that the run will have
  std::vector<std::string> faults{};                              // unreadable directories, a line each
};

// Experiments at or below the directory, sorted by path: those with runs, with traces of a run, or that were shared.
// Includes empty folders in the place of an experiment, such as a process creates at its start.
std::vector<ExperimentFolder> experiment_folders(const std::filesystem::path& directory);

// The summary in the directory if it has the configuration of `run`, whether the run finished or not.
std::optional<RunSummary> summary_of(const std::filesystem::path& directory, const Run& run);

// The same, but only if the run finished, has all requested files, and none of them is damaged.
std::optional<RunSummary> finished_before(const std::filesystem::path& directory, const Run& run);

// The same for a trial, for which divergence is a result, too.
std::optional<RunSummary> tried_before(const std::filesystem::path& directory, const Run& run);

// Whether processes of this call made the run in the directory (FailedAttempts).
bool was_made_by(const std::filesystem::path& directory, const std::string& call);

struct FoundRun {
  std::filesystem::path directory;
  RunSummary summary;
  bool on_wall_clock = false;  // made under MPI
  bool is_trial = false;       // a trial of tuning
  // Keys of config.toml that decide results, "cluster.workers" -> "16", with values as TOML. Excludes the seed,
  // methods, recording, and keys that the method overrides.
  std::map<std::string, std::string> configuration;
  std::map<std::string, std::string> of_method;  // the same for its method: "threshold_s" -> "0.05"
};

// Rules for which runs count in tables, claims, exports and the status. Figures have the same rules (plots/runs.py,
// plots/comparison.py):
// - A run whose directory is not named after its seed and hash is a fault, which names both places. So is a directory
//   with a run's files and another name, such as "seed=1-20c62185.bak". Links and hidden directories are ignored.
// - Two runs of one hash under the same method and swept values are a fault, which names both: one is a copy.
// - A hash under several names of swept values (a sweep, and later one of its points alone) is one run. It gets the
//   name with the most values.
// - If runs differ only in the version of the results, the newest one counts.

// All finished runs at or below the directory, sorted by path. Excludes common phases of other runs. Excludes trials,
// unless they are requested or the directory is in their folder. Throws ResultsDirectoryFault with all faults: no such
// directory, no runs, a damaged or missing file, another schema version, a misplaced run, a copy.
std::vector<FoundRun> find_runs(const std::filesystem::path& directory, bool with_trials = false);

// Simulated runs with these hashes at or below the directory; there may be none. Other runs are not read, so their
// faults do not count.
std::vector<FoundRun> find_runs_of(const std::filesystem::path& directory, const std::set<std::string>& hashes);

// Runs in these directories by the first three rules, with a line for each fault. A run and its copy are both left
// out.
struct RunsAndFaults {
  std::vector<FoundRun> runs{};
  std::vector<std::string> faults{};
  std::vector<std::string> faults_of_common_phases{};  // no table needs these phases: the runs after them have been
                                                       // read
};
RunsAndFaults read_runs(std::span<const std::filesystem::path> directories, const std::filesystem::path& above);

// Runs by experiment, in the order of first appearance.
std::vector<std::vector<FoundRun>> by_experiment(std::vector<FoundRun> runs);

// Sorted keys whose values differ within a group, or that only part of a group has. Each member is its group's name and
// a pointer to its keys.
using Keyed = std::pair<std::string, const std::map<std::string, std::string>*>;
std::vector<std::string> varied_keys(std::span<const Keyed> members);

// The keys of the configuration that vary among runs of one method, besides method and seed.
std::vector<std::string> varied_keys(std::span<const FoundRun> runs);

// Lines of a run's metrics.csv without comments; the first is the heading. Throws std::runtime_error if unreadable.
std::vector<std::string> evaluation_lines(const std::filesystem::path& directory);

// Finds runs of other experiments in the same results directory that computed the same.
class ReusableRuns {
 public:
  explicit ReusableRuns(std::filesystem::path results) : results_(std::move(results)) {}

  // Files of a finished, simulated run with the same Run::fingerprint that recorded everything that `run` asks for.
  // They are renamed for the directory of `run`, with `copied_from` in metadata.json. nullopt if there is no such run,
  // or if `run` asks for a trace, which contains its run's names. The first call reads all directories and ignores
  // unreadable ones.
  std::optional<FileContents> files_for(const Run& run);

 private:
  std::filesystem::path results_;
  std::optional<std::multimap<std::string, std::filesystem::path>> by_fingerprint_{};
};

// tuning.json beside an experiment's runs: the trials of each method, and the chosen setting.
inline constexpr int tuning_schema_version = 1;

// The file's name for trials on virtual time or under MPI.
const char* tuning_file(bool mpi);

struct TunedTrial {
  std::uint64_t seed = 0;
  std::string hash;
  std::string status;             // status of the trial's run
  std::optional<double> value{};  // value of the measure; a trial without one ranks last
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
  std::vector<std::pair<std::string, std::string>> point{};  // sweep point, if it was tuned there separately
  std::optional<std::size_t> chosen{};                       // index of the setting; none if no setting has a mean
  // If trials missed their target: the time up to which all of them are known. Means are restricted to it.
  std::optional<double> horizon{};
  std::vector<std::string> extended{};  // keys whose grid was extended
  std::vector<std::string> at_edge{};   // keys that the chosen setting has at an edge of the grid
  std::vector<TriedSetting> settings{};

  std::size_t trials() const;
  // How many of a setting's trials reached the target by the horizon.
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
