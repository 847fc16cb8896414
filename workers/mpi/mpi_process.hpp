// One rank's part in a run on the MPI cluster: its parts, and the course of its run.
#pragma once

#include <optional>
#include <string>

#include "workers/mpi/mpi_cluster.hpp"
#include "workers/mpi/mpi_collectives.hpp"
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
    Run(const Options& options, MpiCommunicators& communicators, MpiWaitRounds& rounds);

    MpiStage stage;
    MpiWaiting waiting;
    MpiCollectives collectives;
    MpiPartialSums partial_sums;
    MpiMail mail;
    MpiMicroBatches micro_batches;
    MpiTotals totals;

   private:
    void progress();
  };
  const Options& options() const { return options_; }
  Run& parts() { return *run_; }

 private:
  Time finish();
  [[noreturn]] void fail(const std::string& what);

  Options options_;
  MpiCommunicators communicators_;
  MpiWaitRounds wait_rounds_;
  std::optional<Run> run_;
};

}  // namespace syncopate
