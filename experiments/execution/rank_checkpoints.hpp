// Checkpoints of one run under MPI on the disk: each rank has a part, and what names the parts, the run's checkpoint
// file, appears once all of them are there. Whenever processes are killed, it names a whole set of parts or does not
// exist. All ranks see one directory.
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

#include "experiments/execution/checkpointing.hpp"
#include "results/checkpoint_file.hpp"
#include "results/progress.hpp"
#include "results/run.hpp"
#include "workers/mpi/mpi_cluster.hpp"
#include "workers/mpi/mpi_session.hpp"

namespace syncopate {

class RankCheckpoints : public RankStore {
 public:
  // Collective; what is given outlives it. If there is a checkpoint that cannot be used, rank 0 says so in one line, and
  // the run begins anew. `besides`: what else there is of this rank's part in the run.
  RankCheckpoints(const Run& run, const CheckpointUse& use, const MpiSession& session, Progress& progress,
                  std::function<void(StateArchive&)> besides);
  ~RankCheckpoints() override;
  RankCheckpoints(const RankCheckpoints&) = delete;
  RankCheckpoints& operator=(const RankCheckpoints&) = delete;

  // Collective, at the run's end: nothing of it appears on the disk any more.
  void settle();
  // What the run took before it was taken up.
  double host_s_before() const { return host_s_before_; }

  std::optional<std::int64_t> due() override;
  Written write(std::int64_t number, const std::function<void(ByteSink&)>& contents) override;
  bool written(std::int64_t number, const std::vector<std::optional<std::uint64_t>>& digests) override;
  bool goes_on() const override { return goes_on_; }
  ByteSource& part() override { return *reader_; }
  void gone_on() override;
  void keep(StateArchive& archive) override;

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
  void publish_if_there();
  void publish(const Common& common);
  void settle_published();
  void wait_for_disk();
  void report_failure(const std::string& what);
  void report(const std::string& what);

  const Run& run_;
  const CheckpointUse& use_;
  const MpiSession& session_;
  std::function<void(StateArchive&)> besides_;
  HostClock::time_point begin_ = HostClock::now();
  HostClock::time_point last_ = begin_;       // checkpoint, or where the run began or was taken up
  HostClock::time_point last_look_ = begin_;  // whether all parts are there
  HostClock::time_point called_ = begin_;     // rank 0: for the last one
  HostClock::duration took_{};                // it, from then on
  std::int64_t number_ = 0;                   // of the last one that was called for
  double host_s_before_ = 0;
  bool goes_on_ = false;
  bool has_failed_ = false;  // which is said once
  // Rank 0's: of the newest one that is known to be whole, of which the parts stay, and of one that is being published.
  std::int64_t named_ = -1, publishing_ = -1;
  std::unique_ptr<CheckpointReader> reader_;
  std::future<void> on_its_way_;          // this rank's part, to the disk
  std::optional<std::int64_t> unwanted_;  // its number, where other ranks have none
  std::optional<Common> open_;            // rank 0: written by all, and not published yet
  std::future<void> published_;           // likewise
};

}  // namespace syncopate
