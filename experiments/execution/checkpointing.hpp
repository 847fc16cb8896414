// Checkpoints of one run on the simulated cluster: when they are written, and how the run goes on from one.
//
// A checkpoint holds how many steps models have taken, the numbers that programs were told, what evaluations have come
// to, and the values that are alive then; programs, clocks, rows and counts come back as the run goes through its
// course again without arithmetic (workers/training/checkpoint_log.hpp). So runs of time alone have none: to replay one
// takes as long as to run it.
//
// The run waits while tasks that have been submitted come to their end and values are written; for the disk it waits
// where several processes divide it, and else not.
// Programs may be ahead of the arithmetic by thousands of tasks, with large models by minutes: so that no more than an
// interval's work is lost, the run is looked at after so many steps as an interval has by the pace so far, and never
// after more than twice those whose time is known. Then it waits for its tasks, and the clock says whether a checkpoint
// is due. Few values are alive where a round has just ended: in the last tenth of the interval it is looked at there.
//
// Processes that divide a simulation look at it after the same steps, which the first one says at each look, and each
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
#include "workers/training/checkpoint_log.hpp"
#include "workers/training/gradient_sum.hpp"

namespace syncopate {

// What a checkpoint is of: it is taken up by a program that would compute the same bits, of the same run.
// What decides to the bit what the run computes, and which course it takes; `besides` is of the run's processes.
// `is_common`: to several, whose processors may be unlike: what depends on them stands in each part.
CheckpointIdentity checkpoint_identity(const Run& run, const CheckpointIdentity& besides, bool is_common = false);

// The checkpoint of a run that several processes divide: each writes a part, and the first one a file that names the
// parts, once it sees all of them. If one process cannot write its part, the others remove theirs. What was there
// before stays until a new one is whole.
// Called by all processes, in the same order.
class CheckpointParts {
 public:
  // `file`: what names the parts; `below`: a directory above it that is not made anew. What is given outlives it.
  CheckpointParts(const Run& run, const std::filesystem::path& file, const std::filesystem::path& below,
                  DividedWork& divided);

  // This process's part of the one that all have; null: all begin, and `problem` is why, the same on all, where there is
  // one. `is_taken_up` false: all begin.
  std::unique_ptr<CheckpointReader> open(bool is_taken_up, std::string& problem);

  // This process's part of a new one, to be written. `number`: higher than those before.
  std::unique_ptr<CheckpointWriter> part(std::int64_t number) const;
  // Once it is on the disk: all parts get their common file, after which all others go. `digest`: of this process's
  // part; `problem`: why it has none, or empty. Returns, the same on all, why there is no new checkpoint, or nothing.
  std::string publish(std::int64_t number, std::uint64_t digest, const std::string& problem);

 private:
  struct Parts {
    std::int64_t number = 0;               // 0: none
    std::vector<std::uint64_t> digests{};  // by process
  };
  CheckpointIdentity identity(const std::string& process) const;
  CheckpointIdentity own_identity() const;
  std::filesystem::path own_part(std::int64_t number) const;
  std::unique_ptr<CheckpointReader> find(Parts& parts) const;
  std::string problem_of_all(std::int64_t number, const std::string& own) const;
  std::string name(const Parts& parts);

  const Run& run_;
  const std::filesystem::path& file_;
  const std::filesystem::path& below_;
  DividedWork& divided_;
  bool is_patient_ = true;  // the last look saw all parts: the next one waits for them
};

struct CheckpointCost {
  std::int64_t step = 0;  // before which it was written, of all models'
  std::int64_t values = 0;
  std::int64_t bytes = 0;
  std::uint64_t digest = 0;
  double tasks_s = 0;    // until what was submitted had been computed
  double written_s = 0;  // from then on, until the run went on
};

struct CheckpointUse {
  std::filesystem::path file;
  std::filesystem::path below{};  // the experiment's directory: without it nothing is written
  bool is_taken_up = true;        // false: one that is there is left out of account
  // Whether one is written before a step, which is the n-th of all models'; without it the clock says so. May throw.
  std::function<bool(std::int64_t step)> due{};
  std::function<bool()> is_mine{};  // without it: the run is; else nothing is written once another process has it
  std::function<void(const CheckpointCost&)> on_written{};
  // Under MPI: whether the run ends at a checkpoint (LeftAtCheckpoint), by its number, once that is on the disk; alike
  // on all ranks.
  std::function<bool(std::int64_t number)> leaves{};
  std::function<void()> on_gone_on{};  // likewise: once the run goes on from one
};

// Whether runs like this one have checkpoints, on the simulated cluster or under MPI.
bool has_checkpoints(const Run& run, bool mpi);

class RunCheckpoints {
 public:
  // What is given outlives it. To be made before anything is submitted. If there is a checkpoint that cannot be used,
  // that is said in one line, and the run begins anew.
  // `divided`: who divides the run; null: one process makes it. Of several, all make one, and take part.
  RunCheckpoints(const Run& run, const CheckpointUse& use, CourseLog& log, Executor& executor, Recorder& recorder,
                 DividedWork* divided, Progress& progress);
  ~RunCheckpoints();  // the last one is on the disk
  RunCheckpoints(const RunCheckpoints&) = delete;
  RunCheckpoints& operator=(const RunCheckpoints&) = delete;

  // A round has ended.
  void note_round() { has_round_ended_ = true; }
  // At the run's end: throws AnotherCourse if it has not come to where it was to be taken up.
  void check_end() const;
  // What the run took before it was taken up.
  double host_s_before() const { return host_s_before_; }

 private:
  using HostClock = std::chrono::steady_clock;

  CheckpointIdentity own_identity() const;
  void open(Progress& progress);
  bool is_first() const { return !divided_ || divided_->self() == 0; }
  void take_up();
  bool is_looked_at() const;
  bool due();
  void write_if_due();
  CheckpointCost write();
  void wait_for_disk();
  void report_failure(const std::string& why);
  void report(const std::string& what) const;

  const Run& run_;
  const CheckpointUse& use_;
  CourseLog& log_;
  Executor& executor_;
  Recorder& recorder_;
  DividedWork* const divided_;
  std::optional<CheckpointParts> parts_;  // of a divided run
  HostClock::time_point begin_ = HostClock::now();
  HostClock::time_point last_ = begin_;  // checkpoint, or where the run began or was taken up
  std::int64_t last_step_ = 0;           // then
  std::int64_t looked_at_after_ = 1;     // steps from then on
  double host_s_before_ = 0;
  bool has_round_ended_ = false;
  bool has_failed_ = false;  // which is said once
  std::unique_ptr<CheckpointReader> reader_;
  Recorder::Evaluated evaluated_before_;
  std::future<void> on_its_way_;  // to the disk
};

}  // namespace syncopate
