// One rank's part in a run on the MPI cluster: its parts, and the course of its run.
#pragma once

#include <memory>
#include <string>

#include "workers/mpi/mpi_checkpoints.hpp"
#include "workers/mpi/mpi_cluster.hpp"
#include "workers/mpi/mpi_collectives.hpp"
#include "workers/mpi/mpi_course.hpp"
#include "workers/mpi/mpi_mail.hpp"
#include "workers/mpi/mpi_micro_batches.hpp"
#include "workers/mpi/mpi_partial_sums.hpp"
#include "workers/mpi/mpi_totals.hpp"
#include "workers/mpi/mpi_waiting.hpp"

namespace syncopate {

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

}  // namespace syncopate
