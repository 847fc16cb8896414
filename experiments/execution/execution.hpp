// Executes one run: builds objective, training, executor and cluster, runs the algorithm on them, and returns the rows.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiments/sections/experiment.hpp"
#include "results/progress.hpp"
#include "results/recorder.hpp"
#include "results/run.hpp"
#include "results/run_directory.hpp"
#include "results/summary.hpp"
#include "workers/cluster/accounting.hpp"
#include "workers/mpi/mpi_session.hpp"
#include "workers/training/process_group.hpp"

namespace syncopate {

// The cluster and the processes that execute runs.
struct ExecutionBackend {
  int threads = 1;                  // threads of the executor; only for the simulated cluster
  const MpiSession* mpi = nullptr;  // null: the simulated cluster
  std::string call{};               // Sharing::call, for the metadata; empty: runs are not shared between processes
  // Processes that divide each simulation, and the session that started them; null: one process.
  ProcessGroup* processes = nullptr;
  const MpiSession* divided_by = nullptr;

  // Returns the session of the processes that execute a run together, on either cluster; null: one process.
  const MpiSession* together() const { return mpi ? mpi : divided_by; }
  bool is_rank_0() const { return !together() || together()->rank() == 0; }
};

struct Outcome {
  Recording recording;
  std::optional<RunTotals> totals;  // like timeline and durations, set only for runs that reached their end
  std::optional<Timeline> timeline;
  std::optional<std::vector<MicroBatchTime>> durations;
  std::optional<std::vector<GradientArrival>> arrivals;  // sorted by round and arrival
  std::optional<KeptSamples> samples;
  std::string failure;           // empty: finished or diverged
  bool on_virtual_clock = true;  // false: times are those of the wall clock
  std::int64_t samples_per_micro_batch = 1;
  double host_s = 0;  // seconds of host time, without loading data
  std::chrono::system_clock::time_point start;
  std::chrono::system_clock::time_point end;
};

struct CheckpointUse;

// Executes a run. Returns failures as an outcome; throws only Interrupted.
// Under MPI all ranks call this function, and the recording is complete on rank 0. A failure ends all ranks after
// `before_abort` has received rank 0's recording. Processes that divide a simulation all call this function and all get
// the recording; if one of them fails, all fail. With `checkpoints` (null: none) the run resumes from an existing
// checkpoint and writes new ones (checkpointing.hpp). The caller must remove them after saving the outcome.
Outcome execute(const Run& run, const ExecutionBackend& backend, Progress& progress,
                const std::function<void(const Outcome&)>& before_abort, const CheckpointUse* checkpoints = nullptr);

RunSummary summarise(const Run& run, const Outcome& outcome);

// Returns all files of the run's directory.
FileContents files_of(const Run& run, const Outcome& outcome, const RunSummary& summary,
                      const ExecutionBackend& backend);

// The largest numbers of workers and servers of the experiment's runs. Their sum is the number of processes to start
// under MPI.
struct Participants {
  int workers = 0;
  int servers = 0;
};
Participants participants(const Experiment& experiment);

// The objects with which workers and servers of a run train. Members are destroyed in reverse order, so the executor is
// destroyed before the objects to which its tasks refer.
struct RunTraining {
  // Without an objective the run is time-only. `threads`: threads of the executor. `on_kept`: see Training.
  // `processes`: the processes that divide the simulation; null: one process.
  RunTraining(const Run& run, std::shared_ptr<const Objective> objective, int threads,
              std::function<void(const MicroBatch&)> on_kept = {}, ProcessGroup* processes = nullptr);
  ~RunTraining() { training->leave_processes(); }
  RunTraining(const RunTraining&) = delete;
  RunTraining& operator=(const RunTraining&) = delete;

  std::shared_ptr<const Objective> objective;
  std::optional<Training> training;
  Executor executor;
};

// `observer` and `record` may be null. All arguments must outlive the cluster.
std::unique_ptr<Cluster> make_simulated_cluster(const Run& run, Training& training, RunObserver* observer,
                                                RunRecord* record);

// The arguments must outlive the context.
RunContext context_of(const Run& run, Cluster& cluster, Training& training, RunObserver* observer,
                      RunRecord* record = nullptr);

}  // namespace syncopate
