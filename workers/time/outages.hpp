// Outages: times in which a worker makes no progress. Scheduled ones, and random ones with exponential times up
// and down, each a pure function of (seed, entry, worker, number), so that all methods on both clusters meet the
// same. Those of one worker that overlap or touch are one; it takes the state if one of them does.
//
// An outage that begins while a worker computes stops its micro-batch; the time is booked as down.
//   State kept: the micro-batch goes on afterwards.
//   State lost: what was computed of the micro-batch is lost (discarded), and it is computed anew from the newest
//     model (see Worker). Finished micro-batches of a step under way count all the same, except where the step is
//     computed at a server's newer model.
// One that begins while a worker waits or communicates takes effect when it next computes: it is down until the
// outage's end; what has passed before stays wait, and one that has ended by then has had no effect: what a worker
// has handed over before is not lost, and what it gets then is up to date.
// A deadline that has passed when an outage ends stops the micro-batch there (one that Preempt::microbatch lets
// finish, or whose backward pass Preempt::backward does, goes on then; what Preempt::layer has of one is what was done
// before the outage, if that kept the state); a message that would end it waits as long.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "workers/base/process.hpp"
#include "workers/base/random.hpp"
#include "workers/base/units.hpp"
#include "workers/time/compute_time.hpp"

namespace syncopate {

// Outages that a worker meets in one micro-batch, or from one to the next: the run fails at this number, after a tenth
// of a second. Micro-batches of a heavy tail, without a mean above all, can be so long that a run would never end.
inline constexpr std::int64_t most_met = 1'000'000;
inline constexpr const char* outage_name = "outage";  // of spans

struct Outage {
  Time begin = never;
  Time end = never;
  bool loses_state = false;
};

struct ScheduledOutage {
  Duration at{};        // since the start, >= 0
  Duration duration{};  // > 0
};

struct RandomOutages {
  double mean_time_between_s = 0;  // > 0; from the end of one to the beginning of the next
  double mean_duration_s = 0;      // > 0
};

struct OutageEntry {
  std::vector<Rank> workers{};  // empty: all
  std::variant<ScheduledOutage, RandomOutages> when{};
  bool loses_state = false;
};

// The outages of one worker, one after another.
class WorkerOutages {
 public:
  // The first that ends after `time`, which must not decrease from call to call; a default Outage where none comes any
  // more. Throws RunFailure where most_met others end before it.
  const Outage& next(Time time);
  [[noreturn]] void give_up() const;  // most_met of them

 private:
  friend class OutagePlan;
  struct Source {
    RandomStream stream{};
    RandomOutages means{};
    Outage next{};
    bool is_random = false;
    void advance();
  };
  void advance();

  Rank worker_{};
  std::vector<Source> sources_;
  Outage current_{.begin = start_time, .end = start_time};
};

class OutagePlan {
 public:
  static constexpr std::size_t most_entries = 255;  // each has a random stream of its own

  // Throws std::invalid_argument for values out of range.
  OutagePlan(std::uint64_t seed, std::vector<OutageEntry> entries);

  const std::vector<OutageEntry>& entries() const { return entries_; }
  WorkerOutages of(Rank worker) const;
  bool loses_state(Rank worker) const;  // in some outage

 private:
  std::uint64_t seed_;
  std::vector<OutageEntry> entries_;
};

// What becomes of a micro-batch that takes `duration` when nothing stops it, from `start` on.
struct Passage {
  struct Piece {
    Time end;
    bool down;
  };
  std::vector<Piece> pieces{};  // in order and without gaps, from the start
  Duration worked{};            // in those that are not down
  Time end{};
  bool kept = false;
  bool lost_state = false;    // an outage took it; the worker is up again at the end
  bool is_timed_out = false;  // nor was it, though a message might have ended it before its deadline has
  double backward = 0;        // else, if it is not kept: what counts of its backward pass (see backward_share)
};
// `outages` may be null. A micro-batch that never ends meets none, unless a deadline ends it. Throws RunFailure where
// it meets most_met of them.
Passage pass(const WorkerOutages* outages, Time start, Duration duration, const Deadline& deadline);

// One worker's part in a simulation of them.
struct OutageProgress {
  WorkerOutages outages;
  bool may_lose_state = false;
  bool has_lost_state = false;
  std::vector<Outage> met;  // since it last met others

  void add(Time begin, Time end, Time met_at);
  Duration down_beyond(Time time) const;
};

}  // namespace syncopate
