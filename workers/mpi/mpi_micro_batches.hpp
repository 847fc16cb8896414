// The time and the arithmetic of micro-batches on an MPI rank.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "workers/delays/outages.hpp"
#include "workers/mpi/mpi_collectives.hpp"
#include "workers/mpi/mpi_mail.hpp"
#include "workers/mpi/mpi_partial_sums.hpp"

namespace syncopate {

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

}  // namespace syncopate
