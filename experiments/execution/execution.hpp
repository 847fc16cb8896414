// One run from its plan to its rows: builds objective, training, executor and cluster, and runs the
// algorithm on them.
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

// What runs are executed on.
struct Machinery {
  int threads = 1;                  // of the executor; the simulated cluster only
  const MpiSession* mpi = nullptr;  // null: the simulated cluster
  std::string call{};               // of the processes that share the runs, for the metadata; empty: one alone
  // The processes that divide each simulation among them, where there are several; what they are started by.
  ProcessGroup* processes = nullptr;
  const MpiSession* divided_by = nullptr;

  // Of processes that make a run together, on either cluster; null: there is one.
  const MpiSession* together() const { return mpi ? mpi : divided_by; }
};

struct Outcome {
  Recording recording;
  std::optional<RunTotals> totals;   // none if the run was ended early
  std::optional<Timeline> timeline;  // these two only of runs that came to their end
  std::optional<std::vector<MicroBatchTime>> durations;
  std::optional<std::vector<GradientArrival>> arrivals;  // in order
  std::optional<KeptSamples> samples;
  std::string failure;           // empty: finished, or diverged
  bool on_virtual_clock = true;  // simulated
  std::int64_t samples_per_micro_batch = 1;
  double host_s = 0;  // without loading data
  std::chrono::system_clock::time_point start;
  std::chrono::system_clock::time_point end;
};

struct CheckpointUse;

// Runs on this process, or on this rank together with all others: under MPI all ranks call it, and
// the recording is complete on rank 0. A run that fails is an outcome; only Interrupted is thrown.
// Under MPI a failure ends all ranks, after `before_abort` has seen what rank 0 has recorded. Processes that divide a
// simulation all call it too, and all have what is recorded; where one of them fails, all do.
// With `checkpoints` (null: none) the run goes on from one and leaves others, where runs like it have any: for who
// saves the outcome to remove (checkpointing.hpp, rank_checkpoints.hpp).
Outcome execute(const Run& run, const Machinery& machinery, Progress& progress,
                const std::function<void(const Outcome&)>& before_abort, const CheckpointUse* checkpoints = nullptr);

RunSummary summarise(const Run& run, const Outcome& outcome);

// All files of the run's directory.
FileContents files_of(const Run& run, const Outcome& outcome, const RunSummary& summary, const Machinery& machinery);

// Who takes part in an experiment's runs, for those who must start that many processes.
struct Participants {
  int workers = 0;  // the most that a run has
  int servers = 0;  // likewise
};

Participants participants(const Experiment& experiment);

// What a run trains with, its cluster and its context, as all who execute runs assemble them.
// What the participants of a run train with. Members are destroyed from the last to the first: the executor before what
// its tasks refer to.
struct RunTraining {
  // Without an objective time alone passes. `threads`: of the executor. `on_kept`: see Training. `processes`: those
  // that divide the simulation; null: one does all.
  RunTraining(const Run& run, std::shared_ptr<const Objective> objective, int threads,
              std::function<void(const MicroBatch&)> on_kept = {}, ProcessGroup* processes = nullptr);
  ~RunTraining() { training->leave_processes(); }
  RunTraining(const RunTraining&) = delete;
  RunTraining& operator=(const RunTraining&) = delete;

  std::shared_ptr<const Objective> objective;
  std::optional<Training> training;
  Executor executor;
};

// On virtual time. `observer` and `record` may be null; what is given outlives the cluster.
std::unique_ptr<Cluster> make_simulated_cluster(const Run& run, Training& training, RunObserver* observer,
                                                RunRecord* record);

// What the run's participants share. The arguments outlive it.
RunContext context_of(const Run& run, Cluster& cluster, Training& training, RunObserver* observer,
                      RunRecord* record = nullptr);

}  // namespace syncopate
