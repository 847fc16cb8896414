// What a run on the MPI cluster comes to: every rank's part, summed over all.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "workers/mpi/mpi_mail.hpp"
#include "workers/mpi/mpi_micro_batches.hpp"
#include "workers/mpi/mpi_partial_sums.hpp"

namespace syncopate {

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

}  // namespace syncopate
