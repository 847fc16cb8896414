// What runs take on the machine that makes them, known before they begin: time, disk space and memory, by arithmetic;
// and the time of a micro-batch, where it is to be measured.
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
  std::string kind;          // timing_class
  std::string method;        // its label
  double micro_batches = 0;  // that all workers computed
  double host_s = 0;
};

// By finished runs of the same kind, of the same method if there are any: in proportion to micro-batches, or their mean
// where the budget does not determine the number of steps. nullopt if none is known.
std::optional<double> time_by_finished_runs(const Run& run, std::span<const KnownTime> known);

// By the operations of gradients, evaluations and steps, and the events of the simulation: within a factor of three on
// usual processors; too much for sequences, which count as if all were as long as the longest. `micro_batch_s`: what a
// gradient takes on one thread, if it has been measured. nullopt where the budget does not determine the number of
// steps, and for a module of the user's own that has not been measured.
std::optional<double> time_by_arithmetic(const Run& run, int threads, std::optional<double> micro_batch_s = {});

// On the disk, by the number of rows and files, within a factor of about two; nullopt if a budget does not count steps.
std::optional<double> disk_bytes(const Run& run, bool mpi);

// The plan that is printed before runs begin: how many, how long, how much space.
struct RunPlan {
  enum class TimeBy { arithmetic, micro_batches, finished_runs };
  std::size_t runs = 0;
  std::size_t finished = 0;
  std::size_t later = 0;                   // runs that follow these
  std::optional<double> time_s{};          // of runs to do; none if it is unknown for one of them
  TimeBy time_by = TimeBy::finished_runs;  // the least certain of all runs
  bool may_measure = false;                // a micro-batch would tell more than arithmetic about one of them
  std::optional<double> bytes{};           // on the disk
  int side_by_side = 1;                    // runs at a time
  std::string division{};                  // for users: among which processes
  std::map<std::string, double> host_s{};  // by hashes of runs and common phases
};

struct PlanOptions {
  std::filesystem::path results{};  // with finished runs
  bool mpi = false;
  int threads = 0;  // 0: time is known by finished runs alone
  // Measures a micro-batch on one thread. Empty: arithmetic stands for it. Called once for each kind of runs.
  std::function<double(const Run&)> measure{};
};

// For the runs of an experiment that are `to_do` (not 0), with missing common phases. `later`: runs that will follow,
// if these are trials.
RunPlan plan_of(std::span<const Run> runs, std::span<const int> to_do, std::span<const Run> later,
                const PlanOptions& options);

// For each run 0 if it is finished in the directory of results, else 1.
std::vector<int> runs_to_do(std::span<const Run> runs, const std::filesystem::path& results, bool mpi);

// "24 trials, then 12 runs; ...", or "12 runs, 3 finished; about 4 min on this machine, by finished runs; about 2.1
// MB". `noun`: "run" or "trial".
std::string plan_text(const RunPlan& plan, const std::string& noun = "run");

// The peak resident memory of a process that makes a run, in bytes: known beforehand, so that a run that does not fit
// is refused and not killed.
// Checks:  against the peaks of real runs (tests/experiments/memory_test.cpp has the bounds).
struct MemoryNeed {
  double program = 0;  // the process itself, and the libraries that train networks
  double data = 0;     // the data set
  double models = 0;   // models, optimizer states, gradients, residuals
  double passes = 0;   // of threads that compute gradients
  double workers = 0;  // stacks and accounts of simulated workers
  double records = 0;  // rows and other records
  double vectors = 0;  // number of vectors of the model's length in `models`
  // False: a part is unknown, such as the activations of a user's module, and counts as 0.
  bool is_complete = true;

  double total() const { return program + data + models + passes + workers + records; }
};

struct MemoryOptions {
  int threads = 1;
  int dividing = 1;          // processes that divide the simulated workers, whose models and gradients each holds
  bool is_mpi_rank = false;  // one worker of an MPI cluster; threads do not count
};

MemoryNeed memory_need(const Run& run, const MemoryOptions& options);

// The run that needs most. Without runs null.
struct LargestNeed {
  const Run* run = nullptr;
  MemoryNeed need{};
};
LargestNeed largest_need(std::span<const Run* const> runs, const MemoryOptions& options);

// Memory that a process maps and hardly touches: stacks of the workers that one of these runs simulates.
double stack_room(std::span<const Run> runs);

// "0.51 GiB", and its parts: "models, optimizer states and gradients (34 times 1.86e+06 parameters) 0.24 GiB, ...".
std::string memory_text(double bytes, int digits = 2);
std::string parts_text(const Run& run, const MemoryNeed& need, int threads);

// cluster.micro_batch_s = "measured": how long a micro-batch of the experiment's model takes on this machine while
// other cores compute micro-batches too, as many at once as there are workers or cores. It is measured once and kept in
// the experiment's directory of results, so that a second run has the same configuration.
class MicroBatchTimer {
 public:
  struct Options {
    std::string results_directory;
    bool remeasure = false;  // ignores kept times
    bool keep = true;        // in <results>/<experiment>/measured.json
    // Rank 0 measures while other workers compute; all ranks make the same calls in the same order.
    const MpiSession* mpi = nullptr;
  };
  explicit MicroBatchTimer(Options options) : options_(std::move(options)) {}

  // Throws ConfigurationFault if it cannot be measured or kept, CannotRun if other ranks measure something else.
  MeasuredMicroBatch time(const MicroBatchWork& work);

 private:
  const MpiSession* session() const;  // null: this process is alone
  // Calls `on_measure` before it measures.
  MeasuredMicroBatch kept_or_measured(const MicroBatchWork& work, const std::function<void()>& on_measure) const;

  Options options_;
  std::map<std::string, MeasuredMicroBatch> known_;  // by all that decides the time
};

double wall_clock_s();

// The median over some dozens of gradients on this thread, after a warm-up: under ten seconds if a micro-batch takes
// less than one. `at_once`: threads that compute gradients, with this one; throws std::runtime_error if they cannot be
// started. Each holds the gradients of a step, as a worker does, but at most one and 256 MiB of others. Releasing them
// is not timed. `now_s`: a clock in seconds.
double measure_micro_batch_s(const Objective& objective, const MicroBatchWork& work, int at_once = 1,
                             const std::function<double()>& now_s = wall_clock_s);

// The same for micro-batches of sequences: times 24 of different numbers of tokens in turn, several times each, and
// fits the medians. They are taken from `calibration_epoch`, which is beyond any run.
LengthFit measure_by_lengths(const Objective& objective, const MicroBatchWork& work, int at_once = 1,
                             const std::function<double()>& now_s = wall_clock_s);
inline constexpr std::int64_t calibration_epoch = 1'000'000;

}  // namespace syncopate
