// Checkpoints of one run, on the simulated cluster and under MPI.
//
// The checkpoint of a simulated run contains the number of steps, the checkpoint log, the evaluations, and the models
// and gradients that are still needed. A resumed run first replays the log without the arithmetic
// (workers/training/checkpoint_log.hpp). This restores programs, clocks, rows and counts. Time-only runs have no
// checkpoints, because a replay would take as long as the run.
//
// To write a checkpoint, the run waits until submitted tasks have ended and values are in a file. It does not wait
// until the file is on the disk, unless several processes divide the run.
//
// Programs may be thousands of tasks, or minutes, ahead of the arithmetic. So that at most one interval of work is
// lost, the run stops after a number of steps and consults the clock. It estimates the number of steps in an interval
// from its pace so far, but stops after at most twice the number of steps whose time is known. In the last tenth of the
// interval it stops at the end of a round, where few values are alive. Processes that divide a simulation stop
// after the same steps, which the first process announces, and each writes a part of the checkpoint.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "results/checkpoint_file.hpp"
#include "results/progress.hpp"
#include "results/recorder.hpp"
#include "results/run.hpp"
#include "workers/mpi/mpi_cluster.hpp"
#include "workers/mpi/mpi_session.hpp"
#include "workers/training/checkpoint_log.hpp"
#include "workers/training/gradient_sum.hpp"

namespace syncopate {

struct CheckpointUse {
  std::filesystem::path file;
  std::filesystem::path below{};  // the experiment's directory; if it was deleted, no checkpoint is written
  bool resumes = true;            // false: an existing checkpoint is ignored
  // For tests: whether to write a checkpoint before this step (counted over all models). If empty, the clock decides.
  // May throw.
  std::function<bool(std::int64_t step)> due{};
  std::function<bool()> is_mine{};  // whether this process still has the run (else it writes nothing); empty: true
  // Under MPI: whether the run ends with LeftAtCheckpoint once the checkpoint with this number is on the disk. Must
  // return the same on all ranks.
  std::function<bool(std::int64_t number)> leaves{};
  std::function<void()> on_resumed{};  // under MPI: called once the run has resumed
};

// The contents of the file that names the parts, if several processes write a checkpoint.
struct CheckpointParts {
  std::int64_t number = 0;
  std::vector<std::uint64_t> digests{};  // each process's part

  void serialise(StateArchive& archive) { archive(number, digests); }
};

// Whether the run has checkpoints, on the simulated cluster or under MPI.
bool has_checkpoints(const Run& run, bool mpi);

// Checkpoints of a run on the simulated cluster.
class SimulatedRunCheckpoints {
 public:
  // The arguments must outlive this object. Create it before any task is submitted. If a checkpoint cannot be used, it
  // prints the reason in one line, and the run starts from the beginning. `divided`: the processes that divide the run,
  // each of which creates such an object; null: one process.
  SimulatedRunCheckpoints(const Run& run, const CheckpointUse& use, CheckpointLog& log, Executor& executor,
                          Recorder& recorder, DividedWork* divided, Progress& progress);
  ~SimulatedRunCheckpoints();
  SimulatedRunCheckpoints(const SimulatedRunCheckpoints&) = delete;
  SimulatedRunCheckpoints& operator=(const SimulatedRunCheckpoints&) = delete;

  // Call this when a round has ended.
  void mark_round() { has_round_ended_ = true; }
  // Call this at the run's end. Throws ReplayMismatch if the replay has not reached the checkpoint's step.
  void check_end() const;
  // Host time, in seconds, that the run had used before it resumed.
  double host_s_before() const { return host_s_before_; }

 private:
  using HostClock = std::chrono::steady_clock;
  class Parts;  // the checkpoint's files if several processes divide the run

  CheckpointIdentity own_identity() const;
  void open(Progress& progress);
  bool is_first() const { return !divided_ || divided_->self() == 0; }
  void resume();
  bool is_looked_at() const;
  bool due();
  void write_if_due();
  std::uint64_t write();

  const Run& run_;
  const CheckpointUse& use_;
  CheckpointLog& log_;
  Executor& executor_;
  Recorder& recorder_;
  DividedWork* const divided_;
  std::unique_ptr<Parts> parts_;  // null: the run is not divided
  HostClock::time_point begin_ = HostClock::now();
  HostClock::time_point last_ = begin_;  // time of the last checkpoint, or of the start or resumption
  std::int64_t last_step_ = 0;           // number of steps at the time `last_`
  std::int64_t looked_at_after_ = 1;     // number of steps after last_step_ at which the clock is consulted
  double host_s_before_ = 0;
  bool has_round_ended_ = false;
  bool has_failed_ = false;  // only the first failure is reported
  std::unique_ptr<CheckpointReader> reader_;
  Recorder::Evaluated evaluated_before_;
  std::future<void> on_its_way_;  // the file that is being written to the disk; its destructor waits
};

// Checkpoints of a run under MPI. Each rank writes a part. The run's checkpoint file names the parts and is written
// once all parts exist. So the file names a complete set or does not exist, no matter when processes are killed. All
// ranks must use the same directory.
class MpiRunCheckpoints : public CheckpointStore {
 public:
  // Collective. The arguments must outlive this object. If a checkpoint cannot be used, rank 0 prints the reason in one
  // line, and the run starts from the beginning. `besides`: serialises further state of this rank.
  MpiRunCheckpoints(const Run& run, const CheckpointUse& use, const MpiSession& session, Progress& progress,
                    std::function<void(StateArchive&)> besides);
  MpiRunCheckpoints(const MpiRunCheckpoints&) = delete;
  MpiRunCheckpoints& operator=(const MpiRunCheckpoints&) = delete;

  // Waits for pending writes at the run's end. Afterwards no rank writes checkpoint files. Collective.
  void settle();
  // Host time, in seconds, that the run had used before it resumed.
  double host_s_before() const { return host_s_before_; }

  std::optional<std::int64_t> due() override;
  std::optional<std::uint64_t> write(std::int64_t number, const std::function<void(ByteSink&)>& contents) override;
  bool written(std::int64_t number, const std::vector<std::optional<std::uint64_t>>& digests) override;
  bool resumes() const override { return resumes_; }
  ByteSource& part() override { return *reader_; }
  void resumed() override;
  void serialise(StateArchive& archive) override { besides_(archive); }

 private:
  using HostClock = std::chrono::steady_clock;

  std::int64_t open(Progress& progress);
  CheckpointIdentity identity(std::optional<int> rank) const;
  std::filesystem::path part_file(std::int64_t number) const;  // this rank's part
  void publish_if_there();
  void settle_published();
  void wait_for_disk();
  void report_failure(const std::string& what);

  const Run& run_;
  const CheckpointUse& use_;
  const MpiSession& session_;
  std::function<void(StateArchive&)> besides_;
  HostClock::time_point begin_ = HostClock::now();
  HostClock::time_point last_ = begin_;       // time of the last checkpoint, or of the start or resumption
  HostClock::time_point last_look_ = begin_;  // time of the last check whether all parts exist
  HostClock::time_point called_ = begin_;     // rank 0: when it requested the last checkpoint
  HostClock::duration took_{};                // duration of the last checkpoint since its request
  std::int64_t number_ = 0;                   // number of the last requested checkpoint
  double host_s_before_ = 0;
  bool resumes_ = false;
  bool has_failed_ = false;  // only the first failure is reported
  std::int64_t named_ = -1;  // rank 0: number of the newest complete checkpoint, whose parts are kept
  std::unique_ptr<CheckpointReader> reader_;
  std::future<void> on_its_way_;          // this rank's part, while it is written to the disk; its destructor waits
  std::optional<std::int64_t> unwanted_;  // a part of this rank to remove, because other ranks failed to write theirs
  std::optional<CheckpointParts> open_;   // rank 0: a checkpoint that all ranks have written, but is not published yet
  std::future<std::int64_t> published_;   // rank 0: the publication in progress; returns the checkpoint's number
};

}  // namespace syncopate
