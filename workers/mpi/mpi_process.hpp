// One rank's part in a run on the MPI cluster: its parts, and the course of its run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "workers/cluster/accounting.hpp"
#include "workers/mpi/mpi_checkpoint.hpp"
#include "workers/mpi/mpi_cluster.hpp"
#include "workers/mpi/mpi_collectives.hpp"
#include "workers/mpi/mpi_messages.hpp"
#include "workers/mpi/mpi_partial_sums.hpp"
#include "workers/mpi/mpi_waiting.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {

// The time and the arithmetic of micro-batches on an MPI rank.
class MpiMicroBatches {
 public:
  MpiMicroBatches(MpiStage& stage, MpiWaiting& waiting, const MpiCollectives& collectives, MpiPartialSums& partial_sums,
                  const MpiMail& mail)
      : stage_(stage), waiting_(waiting), collectives_(collectives), partial_sums_(partial_sums), mail_(mail) {
    if (stage.options.outages && stage.is_worker()) outages_ = stage.options.outages->of(stage.self);
  }

  // Thrown through the program of a worker that is in a micro-batch without an end when all others have
  // ended: the run is over.
  struct NeverHeardOfAgain {};

  // See Cluster.
  std::optional<Gradient> compute(const ModelStatePtr& at, const MicroBatch& slot, const MicroBatch& samples,
                                  const Deadline& deadline);
  // What has come of the last one, and the same in another process.
  struct Outcome {
    bool is_evaluated = false;  // its gradient exists, kept or not
    bool is_kept = false;
    bool is_cut = false;  // what a deadline has left of it is
    double backward = 0;  // then
    Duration spent{};
  };
  const Outcome& outcome() const { return outcome_; }
  std::optional<Gradient> computed_before(const ModelStatePtr& at, const MicroBatch& samples, const Outcome& outcome);
  bool may_lose_state() const { return outages_ && stage_.options.outages->loses_state(stage_.self); }
  bool has_lost_state() { return std::exchange(has_lost_state_, false); }

  // Where arithmetic is to fit into drawn durations.
  struct Emulation {
    std::int64_t emulated = 0;  // micro-batches that have one
    std::int64_t overruns = 0;  // those of them that did not fit
    Duration overrun_excess{};  // by so much, together
  };
  const Emulation& emulation() const { return emulation_; }

  template <typename Archive>
  void keep(Archive& archive) {
    archive(has_lost_state_, emulation_);
  }

 private:
  std::shared_ptr<GradientSum> promise(const ModelStatePtr& at, const MicroBatch& samples) const;
  std::shared_ptr<GradientSum> evaluate(const ModelStatePtr& at, const MicroBatch& samples);
  std::optional<Gradient> cancel(const MicroBatch& slot);
  Duration book_passage(const MicroBatch& slot, const Passage& passage, bool kept);
  Passage pass(Time start, Duration duration, const Deadline& deadline);
  void count_overrun(Duration drawn, Duration measured);
  void record_duration(const MicroBatch& slot, Duration spent, Duration injected);
  bool is_cancelled(const Deadline& deadline);
  void sleep_until(Time end, const Deadline& deadline, bool is_endless);
  [[noreturn]] void sleep_for_ever();

  MpiStage& stage_;
  MpiWaiting& waiting_;
  const MpiCollectives& collectives_;
  MpiPartialSums& partial_sums_;
  const MpiMail& mail_;
  std::optional<WorkerOutages> outages_;
  bool has_lost_state_ = false;
  Emulation emulation_;
  Outcome outcome_;
};

// What a run on the MPI cluster comes to: every rank's part, summed over all.
class MpiTotals {
 public:
  MpiTotals(MpiStage& stage, MpiWaiting& waiting, MpiWaitRounds& rounds, const MpiMail& mail,
            const MpiPartialSums& partial_sums, const MpiMicroBatches& micro_batches)
      : stage_(stage),
        waiting_(waiting),
        rounds_(rounds),
        mail_(mail),
        partial_sums_(partial_sums),
        micro_batches_(micro_batches) {}

  // See Cluster.
  void keep(const Work& work, Step staleness);
  void report_steps(const Contribution& contribution);

  // Collective over all ranks, idle ones too, after their programs; this one's has ended then.
  RunTotals add_up(Time own_end);
  // After that: computed beyond the end of the run, and so in none of the accounts.
  Duration cut_time() const { return cut_time_; }

  template <typename Archive>
  void keep(Archive& archive) {
    archive(own_steps_, staleness_);
  }

 private:
  Time agree_on_end(Time own_end, std::size_t& staleness_size);
  std::vector<std::int64_t> own_sums(std::size_t staleness_size);
  RunTotals read_totals(std::span<const std::int64_t> sums, std::size_t staleness_size) const;
  void report_rows();

  MpiStage& stage_;
  MpiWaiting& waiting_;
  MpiWaitRounds& rounds_;
  const MpiMail& mail_;
  const MpiPartialSums& partial_sums_;
  const MpiMicroBatches& micro_batches_;
  std::vector<StepRow> own_steps_;  // of a method without collectives
  std::vector<std::int64_t> staleness_;
  Duration cut_time_{};
};

class MpiCluster::Process {
 public:
  explicit Process(const Options& options);

  RunTotals run(const Program& work, const Program& serve);

  // Of a run, which begins anew each time.
  struct Run {
    Run(const Options& given, MpiCommunicators& communicators, MpiWaitRounds& rounds);

    MpiCourse course;
    NotedRows noted_rows;
    Options options;
    MpiStage stage;
    MpiWaiting waiting;
    MpiCollectives collectives;
    MpiPartialSums partial_sums;
    MpiMail mail;
    MpiMicroBatches micro_batches;
    MpiTotals totals;
    MpiCheckpoints checkpoints;

    // A call begins that may wait, where it is not answered from the course.
    void enter(MpiCourse::Call call);
    // Of any kind; `blocks`: both at once (Cluster::perform).
    StartedCollective start(Collective&& what, const Contribution& contribution, Place place, bool blocks);
    CollectiveResult finish(StartedCollective&& started, Place place, bool blocks);
    void keep(StateArchive& archive);

   private:
    void progress();
    void write_checkpoint(ByteSink& out, Time at);
  };
  const Options& options() const { return options_; }
  Run& parts() { return *run_; }

 private:
  void finish();
  void follow(ByteSource& course);
  void take_up();
  void agree_to_go_on(const std::string& problem);
  [[noreturn]] void fail(const std::string& what);

  Options options_;
  MpiCommunicators communicators_;
  MpiWaitRounds wait_rounds_;
  std::unique_ptr<Run> run_;
  bool has_agreed_ = false;
};

// Rows of steps.csv of methods without collectives: every worker books its own steps, and after the run those of
// equal number become one row.
// Closes rows in ascending order of steps; those of each worker are, and have each step once, with the bytes that have
// been sent by it and to it by servers until then. A row ends with the last worker that has taken its step, and not
// before the one above it.
void close_rows(const std::vector<std::vector<StepRow>>& by_worker, StepRows& rows);

}  // namespace syncopate
