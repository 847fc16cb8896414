// Checkpoints of one run, on the simulated cluster and under MPI.
//
// A simulated run's checkpoint holds the number of steps taken, the log of what programs were told, evaluations and
// live values. Programs, clocks, rows and counts come back by replaying the run without its arithmetic
// (workers/training/checkpoint_log.hpp). Time-only runs have none, because replaying one takes as long as running it.
//
// The run waits while submitted tasks end and values are written; it waits for the disk only where several processes
// divide it. Programs may be thousands of tasks, or minutes, ahead of the arithmetic. So that at most one interval of
// work is lost, the run stops and consults the clock after as many steps as an interval has at the pace so far, and
// never after more than twice the steps whose time is known. In the last tenth of the interval it stops at the end of a
// round, where few values are alive. Processes that divide a simulation stop after the same steps, which the first one
// announces, and each writes its part.
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
  std::int64_t step = 0;  // of all models together, before which it was written
  std::int64_t values = 0;
  std::int64_t bytes = 0;
  std::uint64_t digest = 0;
  double tasks_s = 0;    // until submitted tasks had been computed
  double written_s = 0;  // from then until the run continued
};

struct CheckpointUse {
  std::filesystem::path file;
  std::filesystem::path below{};  // the experiment's directory: without it nothing is written
  bool resumes = true;            // false: an existing checkpoint is ignored
  // Whether one is written before a step, which is the n-th of all models'; without it the clock decides. May throw.
  std::function<bool(std::int64_t step)> due{};
  std::function<bool()> is_mine{};  // false: another process has the run, and nothing is written; empty: always true
  std::function<void(const CheckpointCost&)> on_written{};
  // Under MPI: whether the run ends at a checkpoint (LeftAtCheckpoint), by its number, once it is on the disk; the same
  // on all ranks.
  std::function<bool(std::int64_t number)> leaves{};
  std::function<void()> on_resumed{};  // under MPI: called once the run has resumed
};

// Whether runs like this one have checkpoints, on the simulated cluster or under MPI.
bool has_checkpoints(const Run& run, bool mpi);

// Checkpoints of a run on the simulated cluster.
class SimulatedRunCheckpoints {
 public:
  // The arguments outlive it. Create it before any task is submitted. A checkpoint that cannot be used is reported in
  // one line, and the run starts from the beginning.
  // `divided`: the processes that divide the run, each of which creates one of these; null: one process.
  SimulatedRunCheckpoints(const Run& run, const CheckpointUse& use, CheckpointLog& log, Executor& executor,
                          Recorder& recorder, DividedWork* divided, Progress& progress);
  ~SimulatedRunCheckpoints();  // waits until the last one is on the disk
  SimulatedRunCheckpoints(const SimulatedRunCheckpoints&) = delete;
  SimulatedRunCheckpoints& operator=(const SimulatedRunCheckpoints&) = delete;

  // A round has ended.
  void mark_round() { has_round_ended_ = true; }
  // At the run's end: throws ReplayMismatch if it has not reached the step at which it was to resume.
  void check_end() const;
  // Host time that the run had taken before it resumed.
  double host_s_before() const { return host_s_before_; }

 private:
  using HostClock = std::chrono::steady_clock;
  class Parts;  // of the processes that divide the run

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
  HostClock::time_point last_ = begin_;  // checkpoint, or start or resumption of the run
  std::int64_t last_step_ = 0;           // then
  std::int64_t looked_at_after_ = 1;     // steps from then on
  double host_s_before_ = 0;
  bool has_round_ended_ = false;
  bool has_failed_ = false;  // which is reported once
  std::unique_ptr<CheckpointReader> reader_;
  Recorder::Evaluated evaluated_before_;
  std::future<void> on_its_way_;  // to the disk
};

// Checkpoints of a run under MPI: each rank writes a part, and the run's checkpoint file, which names the parts,
// appears once all parts are there. Whenever processes are killed, it names a complete set or does not exist. All ranks
// must see one directory.
class MpiRunCheckpoints : public CheckpointStore {
 public:
  // Collective; the arguments outlive it. If a checkpoint cannot be used, rank 0 says so in one line, and the run
  // starts from the beginning. `besides`: further state of this rank.
  MpiRunCheckpoints(const Run& run, const CheckpointUse& use, const MpiSession& session, Progress& progress,
                    std::function<void(StateArchive&)> besides);
  ~MpiRunCheckpoints() override;
  MpiRunCheckpoints(const MpiRunCheckpoints&) = delete;
  MpiRunCheckpoints& operator=(const MpiRunCheckpoints&) = delete;

  // Collective, at the run's end: afterwards no rank writes to the disk any more.
  void settle();
  // Host time that the run had taken before it resumed.
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
    std::vector<std::uint64_t> digests{};  // of the parts, by rank
  };

  std::int64_t open(Progress& progress);
  std::string open_part(std::int64_t number);
  bool takes_part() const;
  CheckpointIdentity identity(int rank) const;
  std::filesystem::path part_file(std::int64_t number) const;  // of this rank
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
  HostClock::time_point last_ = begin_;       // checkpoint, or start or resumption of the run
  HostClock::time_point last_look_ = begin_;  // whether all parts are there
  HostClock::time_point called_ = begin_;     // rank 0: for the last one
  HostClock::duration took_{};                // the last one, from then on
  std::int64_t number_ = 0;                   // of the last one that was called for
  double host_s_before_ = 0;
  bool resumes_ = false;
  bool has_failed_ = false;  // which is reported once
  // Rank 0: the newest one known to be complete, whose parts stay, and the one that is being published.
  std::int64_t named_ = -1, publishing_ = -1;
  std::unique_ptr<CheckpointReader> reader_;
  std::future<void> on_its_way_;          // this rank's part, to the disk
  std::optional<std::int64_t> unwanted_;  // number of this rank's part, where other ranks have none
  std::optional<Common> open_;            // rank 0: written by all, and not published yet
  std::future<void> published_;           // rank 0
};

}  // namespace syncopate
