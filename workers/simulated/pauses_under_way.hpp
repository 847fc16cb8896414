// Pauses of the simulated cluster (workers/delays/pauses.hpp): a micro-batch leaves one behind, and what the worker
// does next waits for it. The time counts as computing: it belongs to the micro-batch before.
#pragma once

#include "workers/cluster/deadline.hpp"
#include "workers/simulated/stage.hpp"

namespace syncopate {

class PausesUnderWay {
 public:
  explicit PausesUnderWay(Stage& stage) : stage_(stage), pauses_(stage.options.pauses ? stage.options.workers : 0) {}

  bool none() const { return pauses_.empty(); }
  Duration sleep_after(const MicroBatch& slot) const;

  // These do nothing where there are no pauses.
  void begin(Rank worker, const MicroBatch& slot, const Deadline& deadline) {
    if (!none()) begin_one(worker, slot, deadline);
  }
  void end(Rank worker) {
    if (!none()) end_one(worker);
  }
  void end_trailing_work(Rank worker) {
    if (!none()) pass(worker, pauses_[worker].trailing_until, "trailing work");
  }

 private:
  // What a micro-batch has left behind.
  struct Pause {
    Duration sleep{};
    Time cut_at{};  // it does not go on beyond that
    Time trailing_until{};
  };
  void begin_one(Rank worker, const MicroBatch& slot, const Deadline& deadline);
  void end_one(Rank worker);
  void pass(Rank worker, Time until, const char* what);

  Stage& stage_;
  ByRank<Pause> pauses_;  // empty: there are none
};

}  // namespace syncopate
