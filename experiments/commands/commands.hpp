// The program's commands, their options, and the command line.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/execution/runner.hpp"
#include "experiments/execution/time_simulation.hpp"
#include "experiments/sections/experiment.hpp"
#include "results/lease.hpp"
#include "results/paired_table.hpp"
#include "results/run.hpp"
#include "results/statistics.hpp"
#include "workers/config/settings.hpp"
#include "workers/theory/paper_formulas.hpp"

namespace syncopate {

struct CommandLine;

// `syncopate compare`: runs an experiment on the simulated cluster and under MPI, and shows the error of the
// simulation.
struct CompareOptions {
  RunOptions run;                      // its `cluster` and `mpi` are not used
  std::vector<std::string> arguments;  // changes and profiles of the file, for the processes under MPI
  std::string mpiexec;                 // starts MPI programs; empty: $MPIEXEC, or as built
  Tolerances tolerances;
  bool all_seeds = false;  // false: only the first one
  bool check = false;      // exit status 1 also if an error exceeds its tolerance
  std::string json;        // files to which the result is also written; empty: none
  std::string markdown;
};

// The experiment must be loaded with this override, so that models can be compared.
inline constexpr const char* compare_override = "recording.parameters=true";

// Makes missing runs in the usual directories, prints the table, and writes compare.json beside the runs. Every run
// under MPI is a separate launch, so that a failure does not affect the others.
// Exit status: 0 all runs could be compared (with `check`: and are within the tolerances), 1 if not, 2 the results
// directory, the launcher or a file cannot be used, 130 interrupted.
int compare(const Experiment& experiment, const CompareOptions& options);

// `run --jobs N` and `run --share`: several processes make an experiment's runs (execution/runner.hpp).
//
// Jobs are processes, not threads: LibTorch's pools and settings are per process, and a crash or a lack of memory costs
// only one run. They are children that share runs as with `--share`, so that other processes may join them. This
// process shows progress, restarts crashed children, and prints the tables.
struct SideBySideOptions {
  std::string jobs{};                  // --jobs: a number, "auto", or empty
  bool shares = false;                 // --share
  bool waits = true;                   // false: --no-wait
  double time_out_s = 120;             // --lease-timeout
  std::string job_of{};                // for a child: its parent's call; empty: no child
  int token = -1;                      // for a child: descriptor of its parent's SharedToken
  std::int64_t memory_part_bytes = 0;  // for a child: its memory limit; 0: none
};

// Throws ConfigurationFault for options that exclude each other. `under_mpi`: MPI has started this process.
void check_side_by_side(const CommandLine& line, bool under_mpi);
// The same for an experiment that measures micro-batches, or tunes.
void check_side_by_side(const CommandLine& line, const Experiment& experiment);

// Runs the experiment in this process or with others. Returns the exit status.
int run_side_by_side(const Experiment& experiment, const CommandLine& line);

// `syncopate list`: names for methods, delays, models and so on that an experiment file may use. The names come from
// the tables that read the file.
inline constexpr std::array<std::string_view, 7> listed_kinds = {"algorithms", "delays",    "networks",  "models",
                                                                 "datasets",   "schedules", "optimizers"};

struct ListedName {
  std::string_view name;
  std::string sentence;
  std::string_view family{};  // heading under which names are listed together
  std::string_view paper{};
  std::string_view evaluated{};  // for a method: which model it publishes
};

// Names that may stand at the same place of a file.
struct NameGroup {
  std::string_view kind;   // one of listed_kinds
  std::string_view title;  // title that contains the place
  std::string_view place;  // the key that takes these words
  std::string prefix;      // prefix of a name's own keys; {} stands for the name
  std::vector<ListedName> names{};
  std::map<std::string, std::string> around{};  // other keys on which the place depends
  bool own_keys_only = false;                   // keys that do not depend on the name have this prefix, too, and are
                                                // left out
};
std::vector<NameGroup> name_groups();

// The keys of a name: those of its table, or those that exist only with it. `all`: all keys, if they are known already.
std::vector<KeyDescription> keys_of(const NameGroup& group, std::string_view name);
std::vector<KeyDescription> keys_of(const std::vector<KeyDescription>& all, const NameGroup& group,
                                    std::string_view name);

// Names and sentences in lines of readable width. `kind` is one of listed_kinds, or empty for all of them.
std::string listing(std::string_view kind);

// The description of a name with its keys, of a key, or of a kind. For any other word: all names and keys whose
// sentences contain it. Empty if there are none; unlisted() then says so.
std::string listing_of(std::string_view name);
std::string unlisted(std::string_view name);

// `syncopate --version`, one line per part: Syncopate, compiler, LibTorch, BLAS kernel, MPI, toml++, Boost.
std::string version_text();

// `list --write-pages`: pages that are generated from the tables that read experiment files.
inline constexpr const char* command_that_writes = "./dev list --write-pages";

// All keys of an experiment file: experiments/reference.md.
std::string reference_page();

// algorithms/README.md with the registry's table between two marks. Throws std::runtime_error without the marks.
std::string with_table_of_methods(std::string page);

// Writes both pages in a checkout. Throws std::runtime_error if one is missing or cannot be written.
void write_pages(const std::filesystem::path& checkout);

// For `check` and --memory: how many processes make the runs, with how many threads each.
struct MemoryUse {
  int threads = 1;
  int processes = 1;             // processes of `--jobs`, which divide --memory
  bool is_mpi_rank = false;      // one worker of an MPI cluster
  int dividing = 1;              // processes that divide each simulation
  std::int64_t limit_bytes = 0;  // limit of --memory; 0: none
};
// `ranks`: number of processes that a launcher has started, as workers of an MPI cluster or to divide simulations; 0:
// no launcher.
MemoryUse memory_use(const CommandLine& line, int ranks);

// "memory of a process: about 0.51 GiB, most of all for "Local SGD": ...", the largest over all runs and trials; empty
// without any.
std::string memory_line(const Experiment& experiment, const MemoryUse& use);

// Throws ConfigurationFault if a run or trial that is still to be made needs more than each process may use under the
// limit.
void refuse_beyond_memory(const Experiment& experiment, const CommandLine& line, const MemoryUse& use);

// The bytes of "8GiB", "0.5 GiB", "500MB" or "1000000", in upper or lower case. K, M, G, T and KB, ... are powers of
// 1000, KiB (or Ki), ... of 1024. nullopt for other texts, sizes below a byte, and sizes that do not fit.
std::optional<std::int64_t> memory_size(std::string_view text);

// --- `syncopate predict`: time and communication of methods, by formulas and a short simulation; nothing is trained

// Communication of the whole run.
struct PredictedCommunication {
  double rounds = 0;      // rows of steps.csv: synchronisations
  double bytes = 0;       // sent by all workers
  bool is_exact = false;  // from a whole simulation or a closed form; false: extrapolated from the first steps
};

// Steps and time to a target, according to the noise scale that a finished run has measured before it reached the
// target.
struct PredictedTarget {
  double batch = 0;  // mean number of samples of a step
  double steps = 0;
  double step_time_s = 0;  // mean time of these steps
  double time_s = 0;
  bool is_bound = false;  // local steps, which count as if each were along the mean of all gradients
};

struct PredictedMethod {
  std::string method;
  std::string algorithm{};  // its name in the file
  std::vector<std::pair<std::string, std::string>> sweep;
  std::uint64_t seed = 0;
  std::optional<Step> planned_steps;  // steps of the budget
  std::optional<SimulatedTime> simulated;
  std::optional<double> simulated_speedup;  // S_eff against synchronous SGD's simulation
  double simulated_speedup_error = 0;       // standard error if the two have independent delays
  std::string not_simulated;                // why it was not simulated; empty if it was
  bool failed = false;                      // the simulation failed
  std::optional<PredictedCommunication> communicated{};
  std::optional<PredictedTarget> target{};  // none: not requested, or unknown for the method
  std::vector<FormulaTime> formulas;        // compared with the same method as the simulation
  std::string why_no_formula;               // empty if there are formulas, or if no paper has one
  std::string remark{};                     // Algorithm::remark
  std::string solved{};                     // solved_note of the method; empty: it has no solved number
  bool has_unshared_links = false;          // NetworkModel::has_unshared_links
  std::string compared_with{};              // the method that S_eff refers to; empty: none
};

// A row for each method's simulation, and one for each formula of its paper or for the reason why there is none.
// `width`: terminal width at which tables are split and text is folded; 0: no terminal.
std::string prediction_table(std::span<const PredictedMethod> methods, std::size_t width = 0);
std::string predictions_json(const std::string& experiment, std::span<const PredictedMethod> methods);

// Predicts each sweep point and method with the first seed. S_eff refers to the method with the label `against` at the
// same sweep point, or without a label to synchronous SGD. Throws Interrupted.
std::vector<PredictedMethod> predict(const Experiment& experiment, const std::string& against = "");

// Throws ConfigurationFault, with the nearest label, unless `against` is a method's label or empty.
void check_against(const Experiment& experiment, const std::string& against);

// `predict --to-target RUN`: the time to a target as the product of two numbers: the simulated time of a step, and the
// number of steps that its batch needs according to the noise scale of gradients in finished runs
// (results/statistics.hpp). Waiting for fewer gradients saves time per step and needs more steps.

// The mean over finished runs of one method that reached their target.
struct TargetRuns {
  std::string method;
  std::optional<double> accuracy{}, loss{};  // the target
  int count = 0;
  StepsByBatch steps;
};

// Reads the runs below the directory. Throws ConfigurationFault if there are no runs, several methods or targets, no
// noise scale, no target, or no run that reached it.
TargetRuns read_target_runs(const std::string& directory);

// Throws ConfigurationFault if a run of the experiment has another target.
void check_target(const Experiment& experiment, const TargetRuns& target);

// Adds a PredictedTarget to each of the experiment's methods that was simulated.
void predict_target(std::span<PredictedMethod> methods, const Experiment& experiment, const TargetRuns& target);

// The table with the best setting first, and a line that names this setting and those of its values that lie at the
// edge of a sweep. `width`: as for prediction_table.
std::string target_table(std::span<const PredictedMethod> methods, const TargetRuns& target, std::size_t width = 0);

// `syncopate status`: progress of an experiment's runs, also while other processes make them.
struct RunningRun {
  PlannedRun run{};
  std::string host{};
  long process = 0;
  std::string since{};    // ISO 8601, by that host's clock
  double share_done = 0;  // share of the budget
  bool is_lost = false;   // its process was on this machine and is gone; another process will take the run over
  double silent_s = 0;    // seconds since the lease was last written, by the clocks of the file system and of this
                          // machine
  double time_out_s = 0;

  bool is_silent() const { return is_lost || (time_out_s > 0 && silent_s > time_out_s); }
};

// A run with a checkpoint or temporary files: it is in progress in a process without a lease, or was left unfinished.
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
  std::size_t of_other_launches = 0;  // those of `runs` that are on the disk, but not among the runs shared last
  std::size_t finished = 0;
  std::size_t finished_under_mpi = 0;  // finished runs of the file under MPI, which do not count otherwise
  std::vector<RunningRun> running{};
  std::vector<RunningRun> running_elsewhere{};  // runs of another launch, or common phases; not part of `runs`
  std::vector<FailedRun> failed{};
  std::optional<std::size_t> remaining{};   // none of the above
  std::vector<UnfinishedRun> unfinished{};  // part of those that remain, and common phases
  std::optional<double> left_s{};           // estimate from finished runs of the same method (otherwise of any), and
                                            // the number of working processes
  std::vector<std::string> faults{};        // damaged or unreadable files, one line each
};

// Status of the file's runs. With [tune]: of the trials, and of the runs as far as they are known.
std::vector<ExperimentStatus> status_of(const Experiment& experiment, const std::filesystem::path& results);
// Status of each experiment in or below the directory: the runs that were shared last, and all other runs on the disk.
// Throws ConfigurationFault if there is none.
std::vector<ExperimentStatus> status_of_directory(const std::filesystem::path& directory);

std::string status_text(const std::vector<ExperimentStatus>& experiments);
std::string status_json(const std::vector<ExperimentStatus>& experiments);

// `syncopate table`: the table of existing runs, and differences between methods and one of them.
enum class TableFormat { text, markdown, csv, latex };

struct TablesOptions {
  std::string directory;
  std::string against;                // the method or row with which the others are compared; empty: none
  std::string rank;                   // the measure by which methods are ranked at each point; empty: none
  std::vector<std::string> measures;  // empty: the usual ones
  TableFormat format = TableFormat::text;
};

// For each experiment below the directory: its table, with `against` also the differences paired by seed, and with
// `rank` the best method at each point. As CSV: all measures of all rows. `width`: terminal width in columns; 0: no
// terminal. Throws ConfigurationFault if there is no such directory, method or measure.
std::string tables_of(const TablesOptions& options, std::size_t width);

// `syncopate claims`: the scoreboard of experiments that have been run.
struct ClaimsOptions {
  std::vector<std::string> directories{};  // an experiment that is in several counts in the first one; none:
                                           // results/runs
  TableFormat format = TableFormat::text;
};

// The scoreboard from all claims.json at or below the directories, sorted by experiment. Throws ConfigurationFault if
// there is no such directory, no claims, or a file of another format. `width`: terminal width in columns; 0: no
// terminal.
std::string claims_of(const ClaimsOptions& options, std::size_t width);

// `syncopate export`: existing runs as two CSV files.
struct ExportOptions {
  std::string directory;
  std::string to;            // target folder; empty: the directory itself
  bool with_trials = false;  // include trials of tuning
};

// The files to write. prepare_export throws ConfigurationFault: no runs, damaged runs, or no such folder.
struct Export {
  std::string runs_file, runs_csv;
  std::string evaluations_file, evaluations_csv;
};
Export prepare_export(const ExportOptions& options);

// Writes both files. Throws std::system_error.
void write_export(const Export& tables);

// --- `syncopate thresholds`: effects that DropCompute's thresholds would have had on a recorded run
// Source:  Giladi et al. 2023, Eq. 6 and Figure 3c; the reference code's search.

// Micro-batch times recorded without a threshold.
struct RecordedTimes {
  std::vector<double> times;  // (N, I, M): workers, whole steps, micro-batches, in seconds
  int workers = 1;
  int steps = 1;                   // I: steps in which every worker has all micro-batches
  int micro_batches = 1;           // M: the largest number in a step
  int left_out = 0;                // number of other steps
  std::optional<double> serial_s;  // T^c, if steps.csv has it
  std::string why_no_serial_s;     // set if serial_s is not

  MicroBatchTimes view() const { return {times, workers, steps, micro_batches}; }
};

struct ThresholdsOptions {
  // A CSV file with worker, step, micro_batch, duration_s, plain or compressed, or a run's directory with a
  // durations.csv.gz.
  std::string source;
  std::optional<double> serial_s{};           // T^c; none: the recorded one, or 0
  std::optional<double> maximum_drop_rate{};  // limit for the best thresholds
  std::string json;                           // files to write; empty: none
  std::string csv;
};

// Results for the reference code's grid of thresholds, judged in three ways.
struct ThresholdReport {
  std::string source;
  RecordedTimes recorded;  // without the times themselves
  double serial_s = 0;     // T^c
  double step_s = 0;       // E[T]: time of the slowest worker, without T^c
  double worker_s = 0;     // E[T_n]: time of one worker
  bool is_equal = false;   // all micro-batches take equally long
  struct Way {
    const char* name;  // value of the key `search` of the automatic threshold
    const char* sentence;
    std::vector<ThresholdEffect> effects;  // by threshold
    ThresholdEffect best;                  // an infinite threshold: no finite one gains anything
    LargestDropper dropper_of_best{};
  };
  std::vector<Way> ways;                 // throughput, s-eff, reference
  std::vector<LargestDropper> droppers;  // by threshold
};

// Throws Interrupted, and ConfigurationFault, with file and line, if the source cannot be read.
ThresholdReport report_thresholds(const ThresholdsOptions& options);

std::string threshold_table(const ThresholdReport& report);
std::string thresholds_json(const ThresholdReport& report);
// threshold_s,drop_rate,step_speedup,effective_speedup_throughput,effective_speedup_s_eff,effective_speedup_reference,
// largest_worker_share
std::string thresholds_csv(const ThresholdReport& report);

// --only: keeps runs by labels of methods or variants, or by the first digits of their hashes; without names keeps all.
// If several kinds are named, a run must match one name of each: --only DropCompute --only "slow server" --only "no
// delay" keeps DropCompute's runs of two variants. Throws ConfigurationFault if no run has one of the names.
void choose_runs(Experiment& experiment, const std::vector<std::string>& names);

struct CommandLine {
  std::string command;  // empty for --help and --version, which CLI11 answers
  std::string answer;   // text of that answer
  std::string file;
  std::vector<std::string> overrides;  // key=value, key=a,b,c, ~key
  std::vector<std::string> profiles;
  std::string listed;
  bool writes_pages = false;
  bool ranks = false;
  bool json = false;
  std::string against;  // label of the method with which `predict` compares; empty: synchronous SGD
  std::vector<std::string> only;
  std::string target_runs;        // predict --to-target; empty: none
  std::int64_t memory_bytes = 0;  // --memory; 0: no limit
  bool measures = false;          // check --measure
  bool oversubscribes = false;    // --oversubscribe
  std::string accepted;           // directory with accepted claims.json of experiments; empty: none
  RunOptions options;
  SideBySideOptions side_by_side;
  CompareOptions compare;
  ThresholdsOptions thresholds;
  TablesOptions tables;
  ExportOptions exported;
  ClaimsOptions claims;
  std::int64_t most_runs = LoadOptions().most_runs;
};

// Parses the words. Throws ConfigurationFault.
CommandLine parse_command_line(int argc, char** argv);

// Throws ConfigurationFault if `status` of a directory has options that select or change a file's runs.
void refuse_keys_of_file(const CommandLine& line);

}  // namespace syncopate
