// Estimates of what runs will cost on this machine: time, disk space and memory. Also measures the time of a
// micro-batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/execution/execution.hpp"
#include "results/run.hpp"

namespace syncopate {

// The time of a finished run.
struct KnownTime {
  std::string kind;          // timing_class of the run: runs of one class take equally long per micro-batch
  std::string method;        // the method's label
  double micro_batches = 0;  // computed by all workers
  double host_s = 0;
};

// Estimates the run's time, in seconds, from finished runs of the same kind. Uses only runs of the same method, if
// there are any: the median of their times per micro-batch, times the run's number of micro-batches. If the budget does
// not determine this number, returns the median time of these runs. Returns nullopt if there are no such runs.
std::optional<double> time_by_finished_runs(const Run& run, std::span<const KnownTime> known);

// Estimates the run's time, in seconds, from the number of operations of gradients, evaluations and steps, and from the
// number of simulated events. On usual processors the estimate is right within a factor of three. For sequences it is
// too long, because each sequence counts with the longest length. `micro_batch_s`: measured time of a gradient on one
// thread. Returns nullopt if the budget does not determine the number of steps. Without a measured time, returns
// nullopt for a user's module and for a device other than the processor.
std::optional<double> time_by_arithmetic(const Run& run, int threads, std::optional<double> micro_batch_s = {});

// Estimates the bytes on the disk from the number of rows and files, within a factor of about two. Returns nullopt if
// the budget does not determine the number of steps.
std::optional<double> disk_bytes(const Run& run, bool mpi);

// The plan that is printed before runs begin: how many runs, how long, how much space.
struct RunPlan {
  enum class TimeBy { arithmetic, micro_batches, finished_runs };
  std::size_t runs = 0;
  std::size_t finished = 0;
  std::size_t later = 0;                   // number of runs that follow these trials
  std::optional<double> time_s{};          // time of all runs to do, one after the other; none if one is unknown
  TimeBy time_by = TimeBy::finished_runs;  // the least certain kind of estimate among all runs
  bool may_measure = false;                // whether a measured micro-batch would improve the estimate
  std::optional<double> bytes{};           // on the disk
  int side_by_side = 1;                    // number of runs that are executed at the same time
  std::string division{};                  // text for users about the processes that divide the runs
  std::map<std::string, double> host_s{};  // by hashes of runs and common phases
};

struct PlanOptions {
  std::filesystem::path results{};  // directory that contains finished runs
  bool mpi = false;
  int threads = 0;  // 0: time is estimated only from finished runs
  // Measures the time of a micro-batch on one thread. Called once for each kind of runs. If empty, or if it returns
  // nullopt because this machine lacks the run's device, operations are counted instead.
  std::function<std::optional<double>(const Run&)> measure{};
};

// Plans the runs whose entry in `to_do` is not 0, and missing common phases. `later`: the runs that follow trials.
RunPlan plan_of(std::span<const Run> runs, std::span<const int> to_do, std::span<const Run> later,
                const PlanOptions& options);

// Returns for each run 0 if it is finished in the results directory, otherwise 1.
std::vector<int> runs_to_do(std::span<const Run> runs, const std::filesystem::path& results, bool mpi);

// Returns, for example, "12 runs, 3 finished; about 4 min on this machine, by finished runs; about 2.1 MB on the disk".
// `noun`: "run" or "trial".
std::string plan_text(const RunPlan& plan, const std::string& noun = "run");

// Returns a size with two digits, such as "1.6 MB".
std::string size_text(double bytes);

// The estimated peak of resident memory, in bytes, of a process that executes a run. With this estimate, a run that
// does not fit is refused before it starts, instead of being killed.
// Checks:  against the peaks of real runs (tests/experiments/memory_test.cpp has the bounds).
struct MemoryNeed {
  double program = 0;  // the process itself, and the libraries that train networks
  double data = 0;     // the data set
  double models = 0;   // models, optimizer states, gradients, residuals
  double passes = 0;   // activations and other memory of threads that compute gradients
  double workers = 0;  // stacks and accounts of simulated workers
  double records = 0;  // rows and other records
  double vectors = 0;  // number of vectors of the model's length in `models`
  // False if a part is unknown and counts as 0, for example the activations of a user's module.
  bool is_complete = true;

  double total() const { return program + data + models + passes + workers + records; }
};

// The number and kind of the processes that execute runs.
struct MemoryUse {
  int threads = 1;
  int dividing = 1;              // processes that divide the simulated workers, with their models and gradients
  bool is_mpi_rank = false;      // whether a process is one worker of an MPI cluster; then `threads` is ignored
  int processes = 1;             // processes of `--jobs`, which divide --memory
  std::int64_t limit_bytes = 0;  // limit of --memory; 0: none
};

MemoryNeed memory_need(const Run& run, const MemoryUse& use);

// Returns the bytes of address space for the stacks of simulated workers, the largest over the runs. Most of it is
// never touched.
double stack_room(std::span<const Run> runs);

struct MicroBatchTimerOptions {
  std::string results_directory;
  bool remeasure = false;  // ignore stored times
  bool keep = true;        // store the time in <results>/<experiment>/measured.json
};

// Returns a function that measures the time of a micro-batch of the experiment's model on this machine, for
// cluster.micro_batch_s = "measured". Meanwhile other cores compute micro-batches too, because each worker would do so
// on a core of its own, as far as there are cores. The time is measured once and stored in the experiment's results
// directory, so that later runs have the same configuration. Under MPI, rank 0 measures while the other workers' ranks
// compute, and all ranks must make the same calls in the same order. The session must outlive the function. It throws
// ConfigurationFault if the time cannot be measured or stored, and CannotRun if ranks disagree on the micro-batch.
std::function<MeasuredMicroBatch(const MicroBatchWork&)> micro_batch_timer(MicroBatchTimerOptions options,
                                                                           const MpiSession& session);

double wall_clock_s();

// Returns the median time, in seconds, of some dozens of gradients on this thread, after a warm-up. If a micro-batch
// takes less than one second, measuring takes less than ten. `at_once`: number of threads that compute gradients,
// including this one; throws std::runtime_error if they cannot be started. Each thread holds the gradients of a step,
// as a worker does, but at most one gradient and 256 MiB of further ones. Releasing gradients is not timed. `now_s`: a
// clock in seconds.
double measure_micro_batch_s(const Objective& objective, const MicroBatchWork& work, int at_once = 1,
                             const std::function<double()>& now_s = wall_clock_s);

// Measures micro-batches of sequences. Times 24 micro-batches with different numbers of tokens, several times each, and
// fits the cost to the medians. The micro-batches come from `calibration_epoch`, which no run reaches.
LengthFit measure_by_lengths(const Objective& objective, const MicroBatchWork& work, int at_once = 1,
                             const std::function<double()>& now_s = wall_clock_s);
inline constexpr std::int64_t calibration_epoch = 1'000'000;

}  // namespace syncopate
