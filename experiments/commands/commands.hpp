// The command line: what may be said on it, and what was.
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

// `syncopate compare`: an experiment on the simulated cluster and under MPI, and the error of the simulation.
struct CompareOptions {
  RunOptions run;                      // its `cluster` and `mpi` are not used
  std::vector<std::string> arguments;  // changes and profiles that it was loaded with, for the processes under MPI
  std::string mpiexec;                 // see mpi_launcher
  Tolerances tolerances;
  bool all_seeds = false;  // else the first one
  bool check = false;      // exit status 1 also where something is not within the tolerances
  std::string json;        // further files for the result; empty: none
  std::string markdown;
};

// What the experiment must be loaded with, beside the user's, so that the models can be compared.
inline constexpr const char* compare_override = "recording.parameters=true";

// Runs what is not there yet into the usual directories, prints the table, and writes compare.json beside the runs'
// directories. Every run under MPI is a launch of its own, so that one that fails leaves the others alone.
// The exit status: 0 all runs could be compared (with `check`: and are within the tolerances), 1 if not, 2 the results
// directory, the launcher or one of the files cannot be used, 130 interrupted.
int compare(const Experiment& experiment, const CompareOptions& options);

// `run --jobs N` and `run --share`: an experiment's runs made by several processes (execution/runner.hpp).
//
// Jobs are processes and not threads: LibTorch's pools and settings are of a whole process, and a crash, or memory that
// does not suffice, then costs one run and not all. They are children that share the runs as processes of `--share` do,
// so that others may join them, and this process shows how far they are, starts one anew that has crashed, and prints
// the tables.
struct CommandLine;

struct SideBySideOptions {
  std::string jobs{};                  // --jobs: a number, "auto", or empty
  bool shares = false;                 // --share
  bool waits = true;                   // not --no-wait
  double time_out_s = 120;             // --lease-timeout
  std::string job_of{};                // of a child: the call of its parent; empty: it is none
  int token = -1;                      // of a child: the descriptor of its parent's SharedToken
  std::int64_t memory_part_bytes = 0;  // of a child: the most that it may take; 0: no limit
};

// Throws ConfigurationFault for what does not go together. `under_mpi`: this process is one of MPI's.
void check_side_by_side(const CommandLine& line, bool under_mpi);
// Also where micro-batches are to be measured, or something is to be tuned.
void check_side_by_side(const CommandLine& line, const Experiment& experiment);

struct Division {
  int jobs = 1;
  int threads = 1;                // of each
  std::int64_t memory_bytes = 0;  // for each
};
// "auto" is as many as there are threads, runs to do, and room for in memory (execution/memory.hpp): what is free,
// or what --memory allows of it (0: no limit).
Division division_of(const Experiment& experiment, std::size_t to_do, const std::string& jobs, int threads,
                     std::int64_t memory_bytes = 0);
std::string division_text(const Division& division);  // "in 4 processes of 1 thread and at most 5.2 GB each"

// Runs the experiment as the command line says, by itself or with others. The exit status.
int run_side_by_side(const Experiment& experiment, const CommandLine& line);

// What can be named in an experiment file, for `syncopate list`, and what the program consists of, for
// `syncopate --version`.
// The names that an experiment file may use for things: methods, delays, models and so on, by the tables that read
// them.
inline constexpr std::array<std::string_view, 7> listed_kinds = {"algorithms", "delays",    "networks",  "models",
                                                                 "datasets",   "schedules", "optimizers"};

struct ListedName {
  std::string_view name;
  std::string sentence;
  std::string_view family{};  // those of one stand together below its name
  std::string_view paper{};
  std::string_view evaluated{};  // of a method: which model it publishes
};

// Names that stand at the same place of a file.
struct NameGroup {
  std::string_view kind;   // one of listed_kinds
  std::string_view title;  // with the place
  std::string_view place;  // the key whose words they are
  std::string prefix;      // of their own keys; {} stands for the name
  std::vector<ListedName> names{};
  std::map<std::string, std::string> around{};  // what else the file must say for the place to be there
  bool own_keys_only = false;                   // the prefix is also that of keys which have nothing to do with it
};
std::vector<NameGroup> name_groups();

// What the names of its keys begin with.
std::string prefix_of(const NameGroup& group, std::string_view name);

// The keys that belong to a name: those of its table, or those that exist with it alone.
std::vector<KeyDescription> keys_of(const NameGroup& group, std::string_view name);
// Of those that have been found already.
std::vector<KeyDescription> keys_of(const std::vector<KeyDescription>& all, const NameGroup& group,
                                    std::string_view name);

// Each row's name and sentence, in lines of a width to read; `kind` is one of listed_kinds, or empty for all of them.
std::string listing(std::string_view kind);

// What a name of an experiment file stands for, with all its keys; or a key, or a kind as above. Of another word, all
// names and keys whose sentences have it. Empty: there are none, and unlisted() says so.
std::string listing_of(std::string_view name);
std::string unlisted(std::string_view name);

// A line per part: Syncopate, compiler, LibTorch, BLAS kernel, MPI, toml++, Boost.
std::string version_text();

// Pages that are written from the tables that read and list experiment files: experiments/reference.md, and the table
// of methods in algorithms/README.md.
inline constexpr const char* command_that_writes = "./dev list --write-pages";

// All keys of an experiment file, as a page.
std::string reference_page();

// The page of methods, its table between two marks replaced by the registry's. Throws std::runtime_error without them.
std::string with_table_of_methods(std::string page);

// Writes both in a checkout. Throws std::runtime_error where one of them is not there or cannot be written.
void write_pages(const std::filesystem::path& checkout);

// What `check` says of memory, and what --memory refuses.
struct CommandLine;

// How many processes make the runs, and with how many threads each.
struct MemoryUse {
  int threads = 1;
  int processes = 1;             // of `--jobs`, among which --memory is divided
  bool is_mpi_rank = false;      // one worker of an MPI cluster
  int dividing = 1;              // so many processes divide each simulation
  std::int64_t limit_bytes = 0;  // of --memory; 0: none
};
// `ranks`: that a launcher has started, which are workers of an MPI cluster or divide simulations; 0: there is none.
MemoryUse memory_use(const CommandLine& line, int ranks);

// "memory of a process: about 0.51 GiB, most of all for "Local SGD": ...". Of all runs and trials; empty where there is
// none.
std::string memory_line(const Experiment& experiment, const MemoryUse& use);

// Throws ConfigurationFault where a run or trial that is still to be made needs more than the limit leaves a process.
void refuse_beyond_memory(const Experiment& experiment, const CommandLine& line, const MemoryUse& use);

// Sizes of memory as users write them.
// Bytes of "8GiB", "0.5 GiB", "500MB" or "1000000", in letters of either case: K, M, G, T and KB, ... are powers of
// 1000, KiB (or Ki), ... of 1024. None for what is no such size, is less than a byte, or more than a number holds.
std::optional<std::int64_t> memory_size(std::string_view text);

// `syncopate predict`: what an experiment's methods will take, by formulas and by a short simulation of time alone;
// nothing is trained and no data are loaded.
// Predictions of an experiment's methods, as a table and as JSON.
// What is communicated in the whole run.
struct PredictedCommunication {
  double rounds = 0;      // rows of steps.csv: synchronisations
  double bytes = 0;       // of all workers
  bool is_exact = false;  // by a whole simulation or in closed form; else the first steps' pace, drawn out
};

// Steps and time to a target, by the noise scale that a finished run has measured on its way there.
struct PredictedTarget {
  double batch = 0;  // samples that go into a step, on average
  double steps = 0;
  double step_time_s = 0;  // of these steps
  double time_s = 0;
  bool is_bound = false;  // local steps: as if they were as good as steps along the mean of all gradients
};

struct PredictedMethod {
  std::string method;
  std::string algorithm{};  // as the file names it
  std::vector<std::pair<std::string, std::string>> sweep;
  std::uint64_t seed = 0;
  std::optional<Step> planned_steps;  // of the budget
  std::optional<SimulatedTime> simulated;
  std::optional<double> simulated_speedup;  // S_eff against synchronous SGD's simulation
  double simulated_speedup_error = 0;       // its standard error, as if the two drew delays of their own
  std::string not_simulated;                // why not; empty if it was
  bool failed = false;                      // because the simulation failed
  std::optional<PredictedCommunication> communicated{};
  std::optional<PredictedTarget> target{};  // none: not asked for, or nothing is known of the method
  std::vector<FormulaTime> formulas;        // against the same as the simulation
  std::string why_no_formula;               // empty if there are some
  std::string solved{};                     // what a number of the method was solved for, and gives; empty: nothing was
  bool has_unshared_links = false;          // (NetworkModel::has_unshared_links)
  std::string compared_with{};              // S_eff's, of simulation and formulas: which method; empty: none
};

// A row for the simulation of each method, and one for each of its formulas, or for why there is none.
// `width`: of the terminal, at which the table is broken into several and text folded; 0: there is none.
std::string prediction_table(std::span<const PredictedMethod> methods, std::size_t width = 0);
std::string predictions_json(const std::string& experiment, std::span<const PredictedMethod> methods);

// Method by method, sweep point by sweep point, each with the first seed. S_eff is against the method of this label, at
// the same point of the sweep, and if there is none against synchronous SGD. Throws Interrupted.
std::vector<PredictedMethod> predict(const Experiment& experiment, const std::string& against = "");

// Throws ConfigurationFault, with the nearest label, unless it is that of a method or empty.
void check_against(const Experiment& experiment, const std::string& against);

// `predict --to-target RUN`: time to a target from two parts, the time of a step, which is simulated, and the steps
// that are needed at its batch, by the noise scale of gradients along a finished run
// (results/statistics.hpp). What waiting for fewer gradients saves in time it costs in steps: the best
// setting is where the product is least.
// A finished run that has reached its target, or several of one method, of which this is the mean.
struct TargetRuns {
  std::string method;
  std::optional<double> accuracy{}, loss{};  // the target
  int count = 0;
  StepsByBatch steps;
};

// Below the directory. Throws ConfigurationFault: nothing there, runs of several methods or targets, no noise scale, no
// target, or none that reached it.
TargetRuns read_target_runs(const std::string& directory);

// Throws ConfigurationFault where a run of the experiment has another target: what is told is about the runs'.
void check_target(const Experiment& experiment, const TargetRuns& target);

// Adds PredictedTarget to methods that were simulated, whose runs these are.
void predict_target(std::span<PredictedMethod> methods, const Experiment& experiment, const TargetRuns& target);

// A table of its own, the best setting first, and a line that names it and what of it is at the edge of a sweep.
// `width`: as for prediction_table.
std::string target_table(std::span<const PredictedMethod> methods, const TargetRuns& target, std::size_t width = 0);

// `syncopate status`: how far an experiment's runs are, also while other processes make them.
struct RunningRun {
  PlannedRun run{};
  std::string host{};
  long process = 0;
  std::string since{};    // ISO 8601, by that host's clock
  double share_done = 0;  // of the budget
  bool is_lost = false;   // a process of this machine that is gone: the next one that looks takes it over
  double silent_s = 0;    // since its lease was written last, by the clocks of the file system and of this machine
  double time_out_s = 0;

  bool is_silent() const { return is_lost || (time_out_s > 0 && silent_s > time_out_s); }
};

// Under way in processes that do not share it, or left so: it has a checkpoint, or files without their names.
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
  std::optional<std::size_t> runs{};  // nothing where it is not known: there is no file, and no process has shared it
  std::size_t of_other_launches = 0;  // of these: on the disk, and not among those that were shared last
  std::size_t finished = 0;
  std::size_t finished_under_mpi = 0;  // of a file's runs, besides
  std::vector<RunningRun> running{};
  std::vector<RunningRun> running_elsewhere{};  // shared by another launch, or common phases: not among the runs
  std::vector<FailedRun> failed{};
  std::optional<std::size_t> remaining{};   // neither of these
  std::vector<UnfinishedRun> unfinished{};  // of those that remain, and common phases
  std::optional<double> left_s{};           // by finished runs of the same method or else of any, and by those at work
  std::vector<std::string> faults{};        // what is damaged, or cannot be read, a line each
};

// Of the file's runs; with [tune] of the trials and what has come of them so far.
std::vector<ExperimentStatus> status_of(const Experiment& experiment, const std::filesystem::path& results);
// Of the experiment in the directory, or of each one below it: the runs that were shared last, and all others that are
// on the disk. Throws ConfigurationFault where there is none.
std::vector<ExperimentStatus> status_of_directory(const std::filesystem::path& directory);

std::string status_text(const std::vector<ExperimentStatus>& experiments);
std::string status_json(const std::vector<ExperimentStatus>& experiments);

// `syncopate table`: the table of runs that are there, and how methods differ from one of them.
enum class TableFormat { text, markdown, csv, latex };

struct TablesOptions {
  std::string directory;
  std::string against;                // the method (or row) that the others are compared with; empty: none
  std::string rank;                   // a measure by which methods are ranked at each point; empty: none
  std::vector<std::string> measures;  // by their names; empty: the usual ones
  TableFormat format = TableFormat::text;
};

// Of each experiment below the directory: its table, and with `against` the differences paired by seed, and with `rank`
// which method is best when; as CSV a row for each row of both, with all measures. `width`: of the terminal, in
// columns; 0: there is none. Throws ConfigurationFault: the directory, a method or a measure is not there.
std::string tables_of(const TablesOptions& options, std::size_t width);

// `syncopate claims`: the scoreboard over experiments that have been run.
struct ClaimsOptions {
  std::vector<std::string> directories{};  // of an experiment in several the first counts; none: results/runs
  TableFormat format = TableFormat::text;
};

// Of all claims.json at or below the directories, by the names of their folders. Throws ConfigurationFault: no such
// directory, no claims in any, a file that is no list of claims of this version. `width`: of the
// terminal, in columns; 0: there is none.
std::string claims_of(const ClaimsOptions& options, std::size_t width);

// `syncopate export`: runs that are there as two CSV files.
struct ExportOptions {
  std::string directory;
  std::string to;            // where the files go; empty: into the directory itself
  bool with_trials = false;  // of tuning
};

// What will be written, read and checked. Throws ConfigurationFault: no runs, damaged ones, a folder that is not there.
struct Export {
  std::string runs_file, runs_csv;
  std::string evaluations_file, evaluations_csv;
};
Export prepare_export(const ExportOptions& options);

// Throws std::system_error.
void write_export(const Export& tables);

// `syncopate thresholds`: what DropCompute's thresholds would have done to a recorded run.
// Source:  Giladi et al. 2023, Eq. 6 and Figure 3c; the reference code's search.
// Micro-batch times that were recorded without a threshold: of a trace, or of a run that has left its durations.
struct RecordedTimes {
  std::vector<double> times;  // (N, I, M): workers, whole steps, micro-batches, in seconds
  int workers = 1;
  int steps = 1;                   // I, in which nobody lacks a micro-batch
  int micro_batches = 1;           // M, the most of a step
  int left_out = 0;                // steps in which somebody lacks one
  std::optional<double> serial_s;  // T^c, where steps.csv tells it
  std::string why_no_serial_s;     // else

  MicroBatchTimes view() const { return {times, workers, steps, micro_batches}; }
};

// `source`: a CSV file with worker, step, micro_batch, duration_s, plain or compressed, or a run's directory with its
// durations.csv.gz. T^c is what a step of steps.csv takes beyond its slowest worker's micro-batches, on average over
// the whole steps, as in DropCompute's reference code, and not below 0. Throws ConfigurationFault, which names the file
// and, for what stands in it, the line.
RecordedTimes read_recorded_times(const std::filesystem::path& source);

struct ThresholdsOptions {
  std::string source;                         // see read_recorded_times
  std::optional<double> serial_s{};           // T^c; none: the recorded one, or 0
  std::optional<double> maximum_drop_rate{};  // of the best ones
  std::string json;                           // files to write, if not empty
  std::string csv;
};

// The reference code's grid of thresholds, judged in each of the three ways.
struct ThresholdReport {
  std::string source;
  RecordedTimes recorded;  // without its times
  double serial_s = 0;     // T^c
  double step_s = 0;       // E[T]: the slowest worker's, without T^c
  double worker_s = 0;     // E[T_n]: of a worker
  bool is_equal = false;   // all micro-batches take equally long
  struct Way {
    const char* name;  // as the key `search` of the automatic threshold has it
    const char* sentence;
    std::vector<ThresholdEffect> effects;  // by threshold
    ThresholdEffect best;                  // of the search; an infinite threshold: none gains anything
    LargestDropper dropper_of_best{};
  };
  std::vector<Way> ways;                 // throughput, s-eff, reference
  std::vector<LargestDropper> droppers;  // by threshold
};

// Throws ConfigurationFault where the source cannot be read, and Interrupted.
ThresholdReport report_thresholds(const ThresholdsOptions& options);

std::string threshold_table(const ThresholdReport& report);
std::string thresholds_json(const ThresholdReport& report);
// threshold_s,drop_rate,step_speedup,effective_speedup_throughput,effective_speedup_s_eff,effective_speedup_reference,
// largest_worker_share
std::string thresholds_csv(const ThresholdReport& report);

// --only: some of an experiment's runs.
// Leaves the runs that are named, all if none is: by labels of methods, labels of variants, or how a hash begins. Of
// several kinds of names a run must have one of each: --only DropCompute --only "slow server" --only "no delay" leaves
// DropCompute's runs of two variants. Throws ConfigurationFault for a name that no run has.
void choose_runs(Experiment& experiment, const std::vector<std::string>& names);

struct CommandLine {
  std::string command;  // empty where CLI11 has answered by itself: --help and --version
  std::string answer;   // then: what it says
  std::string file;
  std::vector<std::string> overrides;  // key=value, key=a,b,c, ~key
  std::vector<std::string> profiles;
  std::string listed;
  bool writes_pages = false;
  bool ranks = false;
  bool json = false;
  std::string against;  // the label of the method that `predict` compares with; empty: synchronous SGD
  std::vector<std::string> only;
  std::string target_runs;        // of predict --to-target; empty: none
  std::int64_t memory_bytes = 0;  // --memory; 0: no limit
  bool measures = false;          // check --measure
  bool oversubscribes = false;    // --oversubscribe
  std::string accepted;           // a directory with claims.json of experiments; empty: none
  RunOptions options;
  SideBySideOptions side_by_side;
  CompareOptions compare;
  ThresholdsOptions thresholds;
  TablesOptions tables;
  ExportOptions exported;
  ClaimsOptions claims;
  std::int64_t most_runs = LoadOptions().most_runs;
};

// Throws ConfigurationFault, with what is wrong.
CommandLine parse_command_line(int argc, char** argv);

// Where `status` is asked for a directory: what would choose or change the runs of a file. Throws ConfigurationFault.
void refuse_keys_of_file(const CommandLine& line);

}  // namespace syncopate
