// The program's commands, their options, and the command line.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/execution/cost.hpp"
#include "experiments/execution/runner.hpp"
#include "experiments/execution/time_simulation.hpp"
#include "experiments/sections/experiment.hpp"
#include "results/lease.hpp"
#include "results/paired_table.hpp"
#include "results/run.hpp"
#include "results/statistics.hpp"
#include "workers/config/settings.hpp"

namespace syncopate {

struct CommandLine;

// Writes files and prints, after the command has read and checked its input. Rank 0 calls it once all ranks have agreed
// on the command. Throws std::system_error if a file cannot be written.
using Action = std::function<void()>;

// Returns the result of `call`. Rethrows a Fault as a ConfigurationFault, with `before` in front of its message.
template <typename Fault, typename Call>
auto configured(const std::string& before, const Call& call) {
  try {
    return call();
  } catch (const Fault& fault) {
    throw ConfigurationFault(before + fault.what());
  }
}

// `syncopate compare`: runs an experiment on both clusters, and shows the error of the simulation.
struct CompareOptions {
  std::string mpiexec;  // command that starts MPI programs; empty: $MPIEXEC, or the launcher found at build time
  Tolerances tolerances;
  bool all_seeds = false;  // false: only the first seed
  bool check = false;      // whether an error above its tolerance makes the exit status 1
  std::string json;        // further file for the result; empty: none
  std::string markdown;    // further file for the result as a table; empty: none
};

// Executes missing runs, prints the table, and writes compare.json into the experiment's directory. Each run under MPI
// is a separate launch, so that its failure does not affect the others. Returns 1 if a run could not be compared or,
// with `check`, exceeds a tolerance. Returns 2 if the results directory, the launcher or a file cannot be used.
int compare(const Experiment& experiment, const CommandLine& line);

// `run --jobs N` and `run --share`: several processes execute an experiment's runs (execution/runner.hpp).
//
// Jobs are processes, not threads: LibTorch's thread pools and settings are per process, and a crash or a lack of
// memory costs only one run. This process starts the jobs, shows progress, replaces crashed jobs, and prints the
// tables. Other processes may join the jobs, as with `--share`.
struct SideBySideOptions {
  std::string jobs{};                  // --jobs: a number, "auto", or empty
  bool shares = false;                 // --share
  bool waits = true;                   // false: --no-wait
  double time_out_s = 120;             // --lease-timeout
  std::string job_of{};                // for a child: its parent's Sharing::call; empty: this process is not a child
  int token = -1;                      // for a child: descriptor of its parent's SharedToken
  std::int64_t memory_part_bytes = 0;  // for a child: its memory limit; 0: none
};

// Throws ConfigurationFault if options exclude each other. `under_mpi`: whether MPI has started this process.
void check_side_by_side(const CommandLine& line, bool under_mpi);
// Throws ConfigurationFault if the experiment measures micro-batches or tunes, and the options exclude that.
void check_side_by_side(const CommandLine& line, const Experiment& experiment);

// Executes the experiment in this process or together with other processes. Returns the exit status.
int run_side_by_side(const Experiment& experiment, const CommandLine& line);

// `syncopate list`: the names of methods, delays, models, ... from the tables with which experiment files are read.
inline constexpr std::array<std::string_view, 7> listed_kinds = {"algorithms", "delays",    "networks",  "models",
                                                                 "datasets",   "schedules", "optimizers"};

struct ListedName {
  std::string_view name;
  std::string sentence;
  std::string_view family{};  // heading under which names are grouped; empty: none
  std::string_view paper{};
  std::string_view evaluated{};  // for a method: which model is evaluated
};

// The names that one key of a file accepts as values.
struct NameGroup {
  std::string_view kind;   // one of listed_kinds
  std::string_view title;  // heading of the group; includes the key
  std::string_view place;  // the key that accepts these names
  std::string prefix;      // prefix of a name's own keys; {} is replaced by the name
  std::vector<ListedName> names{};
  std::map<std::string, std::string> around{};  // values of other keys that the key needs to exist
  bool own_keys_only = false;  // whether to leave out keys with the prefix that do not depend on the name
};
std::vector<NameGroup> name_groups();

// Returns the keys of a name: those in its table, or those that exist only with this name.
std::vector<KeyDescription> keys_of(const NameGroup& group, std::string_view name);

// Returns the names of a kind (empty: of all kinds) with their sentences, or the description of a name with its keys,
// or of a key. For any other word, returns the names and keys whose sentences contain it. Throws ConfigurationFault if
// there are none; the message suggests the nearest name.
std::string listing_of(std::string_view name);

// `list --write-pages`: pages that are generated from the same tables.
inline constexpr const char* command_that_writes = "./dev list --write-pages";

// Returns experiments/reference.md, which describes all keys of an experiment file.
std::string reference_page();
// Returns algorithms/README.md with a new table of methods. Throws std::runtime_error if the page lacks its marks.
std::string with_table_of_methods(std::string page);
// Writes both pages in a checkout. Throws std::runtime_error if one is missing or cannot be written.
void write_pages(const std::filesystem::path& checkout);

// `ranks`: number of processes that a launcher has started; 0: none.
MemoryUse memory_use(const CommandLine& line, int ranks);

// Returns the lines of `check` about the bytes that runs send, and the largest memory of a process and of each GPU.
std::vector<std::string> need_lines(const Experiment& experiment, const MemoryUse& use);

// Returns a fault for each key that prevents LibTorch from computing runs or common phases on this machine.
FaultList missing_devices(const Experiment& experiment);

// Throws ConfigurationFault with the faults of missing_devices, for the runs that must still be executed (with [tune],
// for these trials). `is_mpi_rank`: whether runs use the MPI cluster; `compare` uses both clusters.
void refuse_missing_devices(const Experiment& experiment, const CommandLine& line, bool is_mpi_rank);

// Throws ConfigurationFault if a run or trial that must still be executed needs more memory than the limit of --memory
// leaves for each process.
void refuse_beyond_memory(const Experiment& experiment, const CommandLine& line, const MemoryUse& use);

// Returns the number of bytes of "8GiB", "0.5 GiB", "500MB" or "1000000", in upper or lower case. K and KB, ... are
// powers of 1000; KiB and Ki, ... are powers of 1024. Returns nullopt for other texts, and for sizes below one byte or
// above std::int64_t.
std::optional<std::int64_t> memory_size(std::string_view text);

// --- `syncopate predict`: time and communication of methods, by formulas and a short simulation; nothing is trained

// The communication of a whole run.
struct PredictedCommunication {
  double rounds = 0;      // synchronisations, which are the rows of steps.csv
  double bytes = 0;       // sent by all workers
  bool is_exact = false;  // from a whole simulation or a closed form; false: extrapolated from the first steps
};

// Predicted steps and time to a target, according to the noise scale that finished runs measured on the way to it.
struct PredictedTarget {
  double batch = 0;  // mean number of samples of a step
  double steps = 0;
  double step_time_s = 0;  // mean time of the predicted steps
  double time_s = 0;
  bool is_bound = false;  // lower bounds: local steps count like steps along the mean of all gradients
};

struct PredictedMethod : RunName {
  std::string algorithm{};            // its name in the file
  std::optional<Step> planned_steps;  // steps of the budget
  std::optional<SimulatedTime> simulated;
  std::optional<double> simulated_speedup;  // S_eff relative to the simulation of synchronous SGD
  double simulated_speedup_error = 0;       // standard error of S_eff as if the two simulations had independent delays
  std::string not_simulated;                // why it was not simulated; empty if it was
  bool failed = false;                      // whether the simulation failed
  std::optional<PredictedCommunication> communicated{};
  std::optional<PredictedTarget> target{};  // nullopt: no target was requested, or it is unknown for the method
  std::vector<FormulaTime> formulas;        // relative to the same method as simulated_speedup
  std::string why_no_formula;  // why there is no formula; empty if there is one, or if no paper has one for this method
  std::string remark{};        // Algorithm::remark
  std::string solved{};        // solved_note of the method; empty: no number was solved for
  bool has_unshared_links = false;  // NetworkModel::has_unshared_links
  std::string compared_with{};      // the method to which S_eff refers; empty: none
};

// Returns a table with a row for each method's simulation and for each formula of its paper, or the reason why there is
// none. `width`: terminal width at which tables are split and text is folded; 0: no terminal.
std::string prediction_table(std::span<const PredictedMethod> methods, std::size_t width = 0);
std::string predictions_json(const std::string& experiment, std::span<const PredictedMethod> methods);

// Predicts each sweep point and method with the first seed. S_eff is relative to the method with the label `against` at
// the same sweep point or, if the label is empty, to synchronous SGD. Throws Interrupted.
std::vector<PredictedMethod> predict(const Experiment& experiment, const std::string& against = "");

// Throws ConfigurationFault if `against` is neither empty nor a method's label; the message suggests the nearest label.
void check_against(const Experiment& experiment, const std::string& against);

// `predict --to-target RUN`: the time to a target is the simulated time of a step times the number of steps. The noise
// scale of gradients in finished runs gives that number for a method's batch (results/statistics.hpp). A method that
// waits for fewer gradients takes less time per step, but needs more steps.

// Means over the finished runs of one method that reached their target.
struct TargetRuns {
  std::string method;
  std::optional<double> accuracy{}, loss{};  // the target
  int count = 0;
  StepsByBatch steps;
};

// Reads the runs below the directory. Throws ConfigurationFault if there are no runs, several methods or targets, no
// noise scale, no target, or no run that reached its target, and if a run of the experiment has a different target.
TargetRuns read_target_runs(const std::string& directory, const Experiment& experiment);

// Adds a PredictedTarget to each simulated method.
void predict_target(std::span<PredictedMethod> methods, const Experiment& experiment, const TargetRuns& target);

// Returns a table with the best setting first. A line below it names this setting and its values at an edge of the
// sweep. `width`: as for prediction_table.
std::string target_table(std::span<const PredictedMethod> methods, const TargetRuns& target, std::size_t width = 0);

// `syncopate status`: the progress of an experiment's runs, which other processes may be executing.
struct RunningRun {
  PlannedRun run{};
  std::string host{};
  long process = 0;
  std::string since{};    // ISO 8601, by the clock of `host`
  double share_done = 0;  // share of the budget
  bool is_lost = false;   // its process was on this machine and has ended; another process will take over the run
  double silent_s = 0;    // seconds since the lease was written, by this machine's clock and the file's time stamp
  double time_out_s = 0;

  bool is_silent() const { return is_lost || (time_out_s > 0 && silent_s > time_out_s); }
};

// A run with a checkpoint or temporary files: a process without a lease is executing it, or it was interrupted.
struct UnfinishedRun {
  PlannedRun run{};
  bool has_checkpoint = false;
  double written_s_ago = 0;
};

struct FailedRun {
  PlannedRun run{};
  std::string reason{};
};

struct ExperimentStatus {
  std::string name{};
  std::filesystem::path directory{};
  std::optional<std::size_t> runs{};  // unknown if no process has shared the runs and no file was given
  std::size_t of_other_launches = 0;  // part of `runs`: on the disk, but not in the list of runs that was shared last
  std::size_t finished = 0;
  std::size_t finished_under_mpi = 0;  // the file's runs that are finished under MPI; other numbers do not include them
  std::vector<RunningRun> running{};
  std::vector<RunningRun> running_elsewhere{};  // runs of another launch, or common phases; not part of `runs`
  std::vector<FailedRun> failed{};
  std::optional<std::size_t> remaining{};   // runs that are not finished, running or failed
  std::vector<UnfinishedRun> unfinished{};  // part of the remaining runs, and common phases
  std::optional<double> left_s{};           // by finished runs (of the method, if any) and the number of processes
  std::vector<std::string> faults{};        // damaged or unreadable files, one line each
};

// Returns the status of the file's runs. With [tune], the status of the trials comes first.
std::vector<ExperimentStatus> status_of(const Experiment& experiment, const std::filesystem::path& results);
// Returns the status of each experiment at or below the directory. It covers the runs that were shared last, and all
// other runs on the disk. Throws ConfigurationFault if there is no experiment.
std::vector<ExperimentStatus> status_of_directory(const std::filesystem::path& directory);

std::string status_text(const std::vector<ExperimentStatus>& experiments);
std::string status_json(const std::vector<ExperimentStatus>& experiments);

// `syncopate table`: the table of existing runs, and the differences of methods to one of them.
enum class TableFormat { text, markdown, csv, latex };

struct TablesOptions {
  std::string directory;
  std::string against;                // the method or row with which to compare the others; empty: none
  std::string rank;                   // the measure by which methods are ranked at each sweep point; empty: none
  std::vector<std::string> measures;  // the measures to show; empty: the usual ones
  TableFormat format = TableFormat::text;
};

// Returns the table of each experiment below the directory. With `against`, adds the differences paired by seed. With
// `rank`, adds the best method at each sweep point. As CSV, returns all measures of all rows instead. `width`: as for
// prediction_table. Throws ConfigurationFault if there is no such directory, method or measure.
std::string tables_of(const TablesOptions& options, std::size_t width);

// `syncopate claims`: the scoreboard of experiments that have been run.
struct ClaimsOptions {
  std::vector<std::string> directories{};  // if several have an experiment, the first one counts; empty: results/runs
  TableFormat format = TableFormat::text;
};

// Returns the scoreboard from all claims.json at or below the directories, sorted by experiment. Throws
// ConfigurationFault if there is no such directory, no claims, or a file of another format.
std::string claims_of(const ClaimsOptions& options, std::size_t width);

// `syncopate export`: existing runs as two CSV files.
struct ExportOptions {
  std::string directory;
  std::string to;            // target folder; empty: `directory`
  bool with_trials = false;  // include trials of tuning
};

// Throws ConfigurationFault if there are no runs, damaged runs, or no such folder.
Action prepare_export(const ExportOptions& options);

// --- `syncopate thresholds`: the effect that each threshold of DropCompute would have had on a recorded run
// Source:  Giladi et al. 2023, Eq. 6 and Figure 3c; the reference code's search.
// Symbols: T^c is the time of a step outside of its micro-batches (communication and update).

struct ThresholdsOptions {
  // A CSV file (plain or compressed) with columns worker, step, micro_batch, duration_s, or a run's directory with
  // durations.csv.gz.
  std::string source;
  std::optional<double> serial_s{};           // T^c; nullopt: the recorded T^c, or 0
  std::optional<double> maximum_drop_rate{};  // limit on the drop rate of the best thresholds
  std::string json;                           // file for the report; empty: none
  std::string csv;                            // file for the thresholds; empty: none
};

// Throws ConfigurationFault, with file and line, if the source cannot be read. Throws Interrupted.
Action prepare_thresholds(const ThresholdsOptions& options);

// --- `syncopate trace import`: a recording from a PyTorch profiler, or from a CSV file with other columns

struct TraceImportOptions {
  // Traces of the profiler in Chrome's JSON format, one per rank, or one CSV file. All may be compressed with gzip.
  std::vector<std::string> files;
  std::string output;  // the recording, for [cluster.trace]; compressed if it ends in .gz
  std::string range;   // profiler: name of the user's range around a micro-batch; empty: a step is one micro-batch
  bool gpu = false;    // profiler: spans of ranges on the GPU, instead of those of the CPU
  // CSV: the names of the columns. A duration can have a unit: "ms:step_time".
  std::string worker = "worker", step = "step", micro_batch = "micro_batch", duration = "duration_s";
};

// Workers are the ranks in profiler traces (distributedInfo), or else files in their order. In a CSV file they are the
// column's numbers in ascending order, or its values in alphabetical order if any of them is not a number. Leaves out
// steps that not all workers have; the summary counts them. It compares workers in those steps in which each of them
// has as many micro-batches as in any of its steps. Throws Interrupted. Throws ConfigurationFault with all faults: no
// steps, no such range or column, negative, missing or repeated times, times that are all 0, repeated ranks or files,
// an output that is one of the files.
Action prepare_trace_import(const TraceImportOptions& options);

// --- `syncopate data tokens`: token files for [datasets.tokens], made of texts

struct TokenFilesOptions {
  std::vector<std::string> texts;       // files or folders, plain or compressed with gzip
  std::string to;                       // the folder for the files
  bool by_words = false;                // tokens are words instead of bytes
  std::optional<std::int64_t> words{};  // number of words in the vocabulary; nullopt: that of TextOptions
  double test_share = 0.1;              // share of the texts for tests, in (0, 1)
  bool lines = false;                   // each line is a text of its own; false: each file
  bool header = false;                  // whether token files have llm.c's header
};

// Reads the texts. The last part of each file is for tests; with `lines` a hash decides for each line (split_of). The
// contents depend only on the texts, the options and the order of the names. The action replaces the folder with all
// files or none. Throws Interrupted. Throws ConfigurationFault if a file is not a text in UTF-8, a split is empty, or
// the folder contains other files or cannot be written. The folder is checked first.
Action prepare_token_files(const TokenFilesOptions& options);

// --only: keeps the runs with one of the names, which are methods, variants, or beginnings of hashes. Of each kind that
// is given, a run must have one: --only DropCompute --only "slow server" --only "no delay" keeps DropCompute's runs of
// two variants. Throws ConfigurationFault for a name that no run has.
void choose_runs(Experiment& experiment, const std::vector<std::string>& names);

struct CommandLine {
  std::string command;  // empty for --help and --version
  std::string answer;   // output of --help and --version
  std::string file;
  std::vector<std::string> overrides;  // key=value, key=a,b,c, ~key
  std::vector<std::string> profiles;
  std::string listed;
  bool writes_pages = false;
  bool ranks = false;
  bool json = false;
  std::string against;  // predict --against: a method's label; empty: synchronous SGD
  std::vector<std::string> only;
  std::string target_runs;        // predict --to-target; empty: none
  std::int64_t memory_bytes = 0;  // --memory; 0: no limit
  bool measures = false;          // check --measure
  bool oversubscribes = false;    // --oversubscribe
  std::string accepted;           // run --accept: a directory with experiments' claims.json; empty: none
  RunOptions options;
  SideBySideOptions side_by_side;
  CompareOptions compare;
  ThresholdsOptions thresholds;
  TraceImportOptions trace_import;
  TokenFilesOptions token_files;
  TablesOptions tables;
  ExportOptions exported;
  ClaimsOptions claims;
  std::int64_t most_runs = LoadOptions().most_runs;
};

// Returns arguments of `run` for a process that executes runs of this command line's experiment and prints only errors.
std::vector<std::string> arguments_of_run(const CommandLine& line);

// Throws ConfigurationFault if the arguments are not valid.
CommandLine parse_command_line(int argc, char** argv);

// For `status` of a directory: throws ConfigurationFault if there are options that select or change a file's runs.
void refuse_keys_of_file(const CommandLine& line);

}  // namespace syncopate
