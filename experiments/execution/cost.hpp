// Costs of runs on this machine, estimated before they begin: time, disk space and memory, by arithmetic. Also the
// measured time of a micro-batch.
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
  std::string kind;          // its timing_class
  std::string method;        // its label
  double micro_batches = 0;  // computed by all workers
  double host_s = 0;
};

// The time according to finished runs of the same kind, and of the same method if there are any. It is in proportion to
// micro-batches, or their mean time if the budget does not determine the number of steps. nullopt if none is known.
std::optional<double> time_by_finished_runs(const Run& run, std::span<const KnownTime> known);

// The time according to the operations of gradients, evaluations and steps, and the events of the simulation. On usual
// processors it is right within a factor of three. It is too long for sequences, all of which count with the longest
// length. `micro_batch_s`: measured time of a gradient on one thread. nullopt if the budget does not determine the
// number of steps, and for a user's module without a measured time.
std::optional<double> time_by_arithmetic(const Run& run, int threads, std::optional<double> micro_batch_s = {});

// Bytes on the disk according to the number of rows and files, within a factor of about two. nullopt if the budget does
// not count steps.
std::optional<double> disk_bytes(const Run& run, bool mpi);

// The plan that is printed before runs begin: how many runs, how long, how much space.
struct RunPlan {
  enum class TimeBy { arithmetic, micro_batches, finished_runs };
  std::size_t runs = 0;
  std::size_t finished = 0;
  std::size_t later = 0;                   // runs that will follow these
  std::optional<double> time_s{};          // for the runs to do; none if it is unknown for one of them
  TimeBy time_by = TimeBy::finished_runs;  // the least certain method of estimation over all runs
  bool may_measure = false;                // measuring a micro-batch would improve the estimate of one of them
  std::optional<double> bytes{};           // on the disk
  int side_by_side = 1;                    // runs at a time
  std::string division{};                  // for users: the processes that divide the runs
  std::map<std::string, double> host_s{};  // by hashes of runs and common phases
};

struct PlanOptions {
  std::filesystem::path results{};  // directory that contains finished runs
  bool mpi = false;
  int threads = 0;  // 0: only finished runs are used to estimate time
  // Measures a micro-batch on one thread. Called once for each kind of runs. If empty, arithmetic is used instead.
  std::function<double(const Run&)> measure{};
};

// The plan for the runs that are `to_do` (not 0), and for missing common phases. `later`: runs that will follow, if
// these are trials.
RunPlan plan_of(std::span<const Run> runs, std::span<const int> to_do, std::span<const Run> later,
                const PlanOptions& options);

// For each run 0 if it is finished in the results directory, otherwise 1.
std::vector<int> runs_to_do(std::span<const Run> runs, const std::filesystem::path& results, bool mpi);

// "24 trials, then 12 runs; ...", or "12 runs, 3 finished; about 4 min on this machine, by finished runs; about 2.1
// MB". `noun`: "run" or "trial".
std::string plan_text(const RunPlan& plan, const std::string& noun = "run");

// The peak resident memory, in bytes, of a process that makes a run. It is known in advance, so that a run that does
// not fit is refused and not killed.
// Checks:  against the peaks of real runs (tests/experiments/memory_test.cpp has the bounds).
struct MemoryNeed {
  double program = 0;  // the process itself, and the libraries that train networks
  double data = 0;     // the data set
  double models = 0;   // models, optimizer states, gradients, residuals
  double passes = 0;   // memory of threads that compute gradients
  double workers = 0;  // stacks and accounts of simulated workers
  double records = 0;  // rows and other records
  double vectors = 0;  // number of vectors of the model's length in `models`
  // False if a part is unknown and counts as 0, such as the activations of a user's module.
  bool is_complete = true;

  double total() const { return program + data + models + passes + workers + records; }
};

struct MemoryOptions {
  int threads = 1;
  int dividing = 1;          // processes that divide the simulated workers; each holds its workers' models and
                             // gradients
  bool is_mpi_rank = false;  // one worker of an MPI cluster; threads do not count
};

MemoryNeed memory_need(const Run& run, const MemoryOptions& options);

// The run that needs the most memory; null without runs.
struct LargestNeed {
  const Run* run = nullptr;
  MemoryNeed need{};
};
LargestNeed largest_need(std::span<const Run* const> runs, const MemoryOptions& options);

// Memory that a process maps but hardly touches: stacks of the workers that one of these runs simulates.
double stack_room(std::span<const Run> runs);

// "0.51 GiB", and its parts: "models, optimizer states and gradients (34 times 1.86e+06 parameters) 0.24 GiB, ...".
std::string memory_text(double bytes, int digits = 2);
std::string parts_text(const Run& run, const MemoryNeed& need, int threads);

// cluster.micro_batch_s = "measured": the time of a micro-batch of the experiment's model on this machine. Other cores
// compute micro-batches meanwhile, in total as many at once as there are workers or cores. It is measured once and kept
// in the experiment's directory of results, so that a second run has the same configuration.
class MicroBatchTimer {
 public:
  struct Options {
    std::string results_directory;
    bool remeasure = false;  // ignore kept times
    bool keep = true;        // write to <results>/<experiment>/measured.json
    // Rank 0 measures while other workers compute. All ranks must make the same calls in the same order.
    const MpiSession* mpi = nullptr;
  };
  explicit MicroBatchTimer(Options options) : options_(std::move(options)) {}

  // Throws ConfigurationFault if the time cannot be measured or kept, CannotRun if other ranks measure something else.
  MeasuredMicroBatch time(const MicroBatchWork& work);

 private:
  const MpiSession* session() const;  // null: this process is the only one
  // Calls `on_measure` before it measures.
  MeasuredMicroBatch kept_or_measured(const MicroBatchWork& work, const std::function<void()>& on_measure) const;

  Options options_;
  std::map<std::string, MeasuredMicroBatch> known_;  // by everything that determines the time
};

double wall_clock_s();

// The median time of some dozens of gradients on this thread, after a warm-up. It takes under ten seconds if a
// micro-batch takes less than one. `at_once`: number of threads that compute gradients, including this one; throws
// std::runtime_error if they cannot be started. Each thread holds the gradients of a step, as a worker does, but at
// most one gradient and 256 MiB of others. Releasing them is not timed. `now_s`: a clock in seconds.
double measure_micro_batch_s(const Objective& objective, const MicroBatchWork& work, int at_once = 1,
                             const std::function<double()>& now_s = wall_clock_s);

// The same for micro-batches of sequences. Times 24 micro-batches with different numbers of tokens in turn, several
// times each, and fits the medians. They come from `calibration_epoch`, which no run reaches.
LengthFit measure_by_lengths(const Objective& objective, const MicroBatchWork& work, int at_once = 1,
                             const std::function<double()>& now_s = wall_clock_s);
inline constexpr std::int64_t calibration_epoch = 1'000'000;

}  // namespace syncopate
