// Checkpoints of one run, on the simulated cluster and under MPI.
//
// A simulated run's checkpoint holds the number of steps taken, the log of everything that the cluster returned to
// programs, evaluations and live values. Replaying the run without its arithmetic restores programs, clocks, rows and
// counts (workers/training/checkpoint_log.hpp). Time-only runs have no checkpoints, because a replay takes as long as
// the run.
//
// The run waits while submitted tasks end and values are written. It waits for the disk only if several processes
// divide it.
//
// Programs may be thousands of tasks, or minutes, ahead of the arithmetic. To lose at most one interval of work, the
// run stops and consults the clock after a number of steps: as many as an interval has at the pace so far, but at most
// twice the steps whose time is known. In the last tenth of the interval it stops at the end of a round, where few
// values are alive. Processes that divide a simulation stop after the same steps, which the first one announces. Each
// writes its part.
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

struct CheckpointCost {
  std::int64_t step = 0;  // step of all models together before which it was written
  std::int64_t values = 0;
  std::int64_t bytes = 0;
  std::uint64_t digest = 0;
  double tasks_s = 0;    // host time until submitted tasks were computed
  double written_s = 0;  // host time from then until the run continued
};

struct CheckpointUse {
  std::filesystem::path file;
  std::filesystem::path below{};  // the experiment's directory; if it is gone, nothing is written
  bool resumes = true;            // false: an existing checkpoint is ignored
  // Whether a checkpoint is written before the n-th step of all models. If empty, the clock decides. May throw.
  std::function<bool(std::int64_t step)> due{};
  std::function<bool()> is_mine{};  // false: another process has the run, so nothing is written; empty: always true
  std::function<void(const CheckpointCost&)> on_written{};
  // Under MPI: whether the run ends at the checkpoint with this number, once it is on the disk (LeftAtCheckpoint). Must
  // be the same on all ranks.
  std::function<bool(std::int64_t number)> leaves{};
  std::function<void()> on_resumed{};  // under MPI: called once the run has resumed
};

// Whether such runs have checkpoints, on the simulated cluster or under MPI.
bool has_checkpoints(const Run& run, bool mpi);

// Checkpoints of a run on the simulated cluster.
class SimulatedRunCheckpoints {
 public:
  // The arguments must outlive it. Create it before any task is submitted. If a checkpoint cannot be used, it reports
  // this in one line, and the run starts from the beginning. `divided`: the processes that divide the run, each of
  // which creates one of these objects; null: one process.
  SimulatedRunCheckpoints(const Run& run, const CheckpointUse& use, CheckpointLog& log, Executor& executor,
                          Recorder& recorder, DividedWork* divided, Progress& progress);
  ~SimulatedRunCheckpoints();  // waits until the last checkpoint is on the disk
  SimulatedRunCheckpoints(const SimulatedRunCheckpoints&) = delete;
  SimulatedRunCheckpoints& operator=(const SimulatedRunCheckpoints&) = delete;

  // Call it when a round has ended.
  void mark_round() { has_round_ended_ = true; }
  // Call it at the run's end: throws ReplayMismatch if the run has not reached the step at which it was to resume.
  void check_end() const;
  // Host time that the run had used before it resumed.
  double host_s_before() const { return host_s_before_; }

 private:
  using HostClock = std::chrono::steady_clock;
  class Parts;  // used by processes that divide the run

  CheckpointIdentity own_identity() const;
  void open(Progress& progress);
  bool is_first() const { return !divided_ || divided_->self() == 0; }
  void resume();
  bool is_looked_at() const;
  bool due();
  void write_if_due();
  CheckpointCost write();
  void wait_for_disk();

  const Run& run_;
  const CheckpointUse& use_;
  CheckpointLog& log_;
  Executor& executor_;
  Recorder& recorder_;
  DividedWork* const divided_;
  std::unique_ptr<Parts> parts_;  // null: one process makes the run
  HostClock::time_point begin_ = HostClock::now();
  HostClock::time_point last_ = begin_;  // time of the last checkpoint, or of the start or resumption
  std::int64_t last_step_ = 0;           // steps at that time
  std::int64_t looked_at_after_ = 1;     // steps from then until the clock is consulted
  double host_s_before_ = 0;
  bool has_round_ended_ = false;
  bool has_failed_ = false;  // a failure is reported once
  std::unique_ptr<CheckpointReader> reader_;
  Recorder::Evaluated evaluated_before_;
  std::future<void> on_its_way_;  // being written to the disk
};

// Checkpoints of a run under MPI. Each rank writes a part. The run's checkpoint file names the parts; it appears once
// all parts are there. So it names a complete set or does not exist, no matter when processes are killed. All ranks
// must see the same directory.
class MpiRunCheckpoints : public CheckpointStore {
 public:
  // Collective; the arguments must outlive it. If a checkpoint cannot be used, rank 0 reports this in one line, and the
  // run starts from the beginning. `besides`: further state of this rank.
  MpiRunCheckpoints(const Run& run, const CheckpointUse& use, const MpiSession& session, Progress& progress,
                    std::function<void(StateArchive&)> besides);
  ~MpiRunCheckpoints() override;
  MpiRunCheckpoints(const MpiRunCheckpoints&) = delete;
  MpiRunCheckpoints& operator=(const MpiRunCheckpoints&) = delete;

  // Collective, at the run's end. Afterwards no rank writes to the disk any more.
  void settle();
  // Host time that the run had used before it resumed.
  double host_s_before() const { return host_s_before_; }

  std::optional<std::int64_t> due() override;
  Written write(std::int64_t number, const std::function<void(ByteSink&)>& contents) override;
  bool written(std::int64_t number, const std::vector<std::optional<std::uint64_t>>& digests) override;
  bool resumes() const override { return resumes_; }
  ByteSource& part() override { return *reader_; }
  void resumed() override;
  void serialise(StateArchive& archive) override { besides_(archive); }

 private:
  using HostClock = std::chrono::steady_clock;
  struct Common {
    std::int64_t number = 0;
    std::vector<std::uint64_t> digests{};  // digests of the parts, by rank
  };

  std::int64_t open(Progress& progress);
  std::string open_part(std::int64_t number);
  bool takes_part() const;
  CheckpointIdentity identity(int rank) const;
  std::filesystem::path part_file(std::int64_t number) const;  // part of this rank
  void publish_if_there();
  void publish(const Common& common);
  void settle_published();
  void wait_for_disk();
  void report_failure(const std::string& what);

  const Run& run_;
  const CheckpointUse& use_;
  const MpiSession& session_;
  std::function<void(StateArchive&)> besides_;
  HostClock::time_point begin_ = HostClock::now();
  HostClock::time_point last_ = begin_;       // time of the last checkpoint, or of the start or resumption
  HostClock::time_point last_look_ = begin_;  // last look whether all parts are there
  HostClock::time_point called_ = begin_;     // rank 0: when it requested the last checkpoint
  HostClock::duration took_{};                // duration of the last checkpoint since its request
  std::int64_t number_ = 0;                   // number of the last requested checkpoint
  double host_s_before_ = 0;
  bool resumes_ = false;
  bool has_failed_ = false;  // a failure is reported once
  // Rank 0: the newest checkpoint known to be complete, whose parts stay, and the one that is being published.
  std::int64_t named_ = -1, publishing_ = -1;
  std::unique_ptr<CheckpointReader> reader_;
  std::future<void> on_its_way_;          // this rank's part, while it is written to the disk
  std::optional<std::int64_t> unwanted_;  // number of this rank's part if other ranks have none
  std::optional<Common> open_;            // rank 0: written by all ranks, but not published yet
  std::future<void> published_;           // rank 0: the publication in progress
};

}  // namespace syncopate
