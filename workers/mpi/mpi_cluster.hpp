// The cluster of real processes: one worker per MPI rank, wall clock, delays injected as sleeps.
// Ranks 0 .. N-1 are workers; the ranks from N on serve a method that has servers; ranks that a method does
// not need stay idle until its run ends, so that one experiment may mix methods with and without servers.
//
// Accounts: a participant's wall time is booked without gaps. Everything between two cluster calls
// (optimizer steps, the algorithm itself) is compute; waiting for the last arrival is wait, the
// reduction itself communicate.
#pragma once

#include <mpi.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "workers/base/process.hpp"
#include "workers/base/units.hpp"
#include "workers/cluster/accounting.hpp"
#include "workers/cluster/calls.hpp"
#include "workers/cluster/cluster.hpp"
#include "workers/mpi/mpi_post.hpp"
#include "workers/mpi/mpi_session.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/outages.hpp"
#include "workers/training/checkpoint_log.hpp"

namespace syncopate {

// Where the ranks of a run leave checkpoints, and take them up: what an MPI cluster needs of a disk.
class StateArchive;

// One rank's part in it. A checkpoint is common to all ranks: it is one once all of them have written their part.
class RankStore {
 public:
  virtual ~RankStore() = default;

  // Rank 0 alone, again and again while the run goes on: the number of the checkpoint that is to be written now.
  virtual std::optional<std::int64_t> due() = 0;

  // What comes of a part: the digest of what was written; nothing where it could not be, and why.
  struct Written {
    std::optional<std::uint64_t> digest{};
    std::string problem{};
  };
  virtual Written write(std::int64_t number, const std::function<void(ByteSink&)>& contents) = 0;
  // On all ranks, once all have written: of each, by rank, the digest, or nothing. The run goes on; true: it leaves
  // (LeftAtCheckpoint).
  virtual bool written(std::int64_t number, const std::vector<std::optional<std::uint64_t>>& digests) = 0;

  // Whether the run goes on from one, on all ranks alike; and a participant's part of that.
  virtual bool goes_on() const = 0;
  virtual ByteSource& part() = 0;
  // It has gone on.
  virtual void gone_on() = 0;

  // What the caller keeps besides, of this rank's part in the run.
  virtual void keep(StateArchive& archive) = 0;
};

// Thrown through the programs of all ranks where the store wants the run to end at a checkpoint.
struct LeftAtCheckpoint {};

class MpiCluster : public Cluster {
 public:
  struct Options {
    int workers = 1;
    Servers servers{};
    const ComputeTime& compute_time;
    Pace pace = Pace::inject;         // time-only runs compute nothing and so always emulate
    Training& training;               // its executor should have no threads: a rank computes at once
    RunObserver* observer = nullptr;  // may be null; worker 0 reports rounds
    RunRecord* record = nullptr;      // alike on all ranks; null: nothing is recorded. Complete on rank 0 after the run
    const OutagePlan* outages = nullptr;  // alike on all ranks; null: there are none. They are slept through
    const MpiSession& session;
    MPI_Comm communicator = MPI_COMM_NULL;  // null: all ranks of the session
    // Called on a rank that fails, before all ranks end: the last chance to save what there is.
    std::function<void(const std::string& what)> before_abort = {};
    // Null on all ranks: there are no checkpoints. Else this thread keeps a CourseLog (CourseLog::Here) from before
    // `training` is used until the run has ended.
    RankStore* store = nullptr;
  };

  // Collective over the communicator. Throws std::invalid_argument if it has too few ranks.
  explicit MpiCluster(const Options& options);
  ~MpiCluster() override;

  int workers() const override;
  Servers servers() const override;

  // Collective: every rank of the communicator calls it, idle ones too. The totals are complete on
  // every rank. An exception of a program does not come back: it ends all ranks through
  // MpiSession::abort with one message that names this rank. Only AnotherCourse and LeftAtCheckpoint do, on all ranks
  // alike: of a run that cannot go on from the checkpoint in the store, and of one that the store ends at another.
  RunTotals run(const Program& work, const Program& serve) override;

  Time now(Rank self) const override;
  int workers_left(Rank self) override;
  bool has_left(Rank self, Rank worker) const override;
  std::optional<Gradient> compute_gradient(Rank self, const ModelStatePtr& at, const MicroBatch& slot,
                                           const MicroBatch& samples, const Deadline& deadline) override;
  bool may_lose_state(Rank self) const override;
  bool has_lost_state(Rank self) override;
  StartedCollective start(Rank self, Collective&& what, const Contribution& contribution, Place place) override;
  CollectiveResult finish(Rank self, StartedCollective&& started, Place place) override;
  CollectiveResult perform(Rank self, Collective&& what, const Contribution& contribution, Place place) override;
  void report_steps(Rank self, const Contribution& contribution) override;
  void send(Rank self, Rank to, Message&& message, Place place) override;
  ReceivedMessage receive(Rank self, std::optional<Rank> from, Time until, Place place) override;
  void discard(Rank self, const Work& work) override;
  void keep(Rank self, const Work& work, Step staleness) override;
  Bytes bytes_sent() const override;

 private:
  class Process;  // this rank's part in the run
  std::unique_ptr<Process> process_;
};

// Waiting that leaves the core to those who compute: MPI's own blocking calls poll without pause,
// which starves the other ranks as soon as there are more of them than cores.
// Nanoseconds of the machine's monotonic clock, the same for all processes of a node.
inline std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

inline void sleep_until_monotonic(std::int64_t at_ns) {
  const timespec at{.tv_sec = at_ns / 1'000'000'000, .tv_nsec = at_ns % 1'000'000'000};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);  // an interrupt ends it early, which callers allow
}

// Calls `done` until it returns true. When every rank has a core of its own, the first millisecond
// is spun through, so that the latency is that of a blocking call; after that, and at once when
// cores are short, it sleeps between calls: a hundredth of what was waited so far, from 20 to 100
// us, so that the sleep costs a wait at most one per cent, and never beyond `until_ns`. Throws Interrupted.
template <typename Done>
void wait_politely(bool cores_suffice, Done done, std::int64_t until_ns = std::numeric_limits<std::int64_t>::max()) {
  constexpr std::int64_t spin_ns = 1'000'000;
  if (done()) return;
  const std::int64_t begin = monotonic_ns();
  while (true) {
    if (done()) return;
    const std::int64_t now = monotonic_ns();
    if (cores_suffice && now - begin < spin_ns) continue;
    if (interrupted()) throw Interrupted();
    const std::int64_t pause = std::clamp<std::int64_t>((now - begin) / 100, 20'000, 100'000);
    sleep_until_monotonic(std::min(now + pause, std::max(now, until_ns)));
  }
}

// A participant's book by the wall clock: what lies between two bookings belongs to the second.
class WallAccount {
 public:
  // Time counts from `start_ns` of the machine's monotonic clock.
  // `spans` (may be null) are told of all bookings from then on, as those of `self`.
  void restart(std::int64_t start_ns, SpanRecorder* spans, Rank self) { *this = WallAccount(start_ns, spans, self); }

  Time now() const { return Time{Duration{monotonic_ns() - start_ns_}}; }
  std::int64_t to_monotonic_ns(Time time) const { return later(time, Duration{start_ns_}).time_since_epoch().count(); }

  // From the last booking until now, or until `end`, which may lie in the past (then clipped).
  void book(Activity activity, const SpanLabel& label = {}) { book_until(activity, now(), label); }
  void book_until(Activity activity, Time end, const SpanLabel& label) { book_.pass(activity, end, label); }

  // A call begins that may wait: what lies between the last one and this is compute. False where the call had begun
  // before the run was taken up, and goes on: that is booked already.
  bool enter() {
    if (std::exchange(goes_on_, false)) return false;
    book(Activity::compute);
    return true;
  }
  void enter_unbooked() { goes_on_ = false; }

  // From here on time counts from another start: while the run stood still, or was not there, none has passed.
  void go_on_from(std::int64_t start_ns, bool inside_a_call) {
    start_ns_ = start_ns;
    goes_on_ = inside_a_call;
  }
  void stood_still(std::int64_t for_ns) { start_ns_ += for_ns; }

  // Makes the account end at T, see Book::take_back; what is missing was spent waiting.
  Duration close(Time end) {
    book_until(Activity::wait, end, {"end of the run"});
    return book_.take_back(end);
  }

  Book& book() { return book_; }
  Time booked() const { return book_.now(); }  // everything before it is booked
  void meet() { book_.meet(); }
  Time met_at() const { return book_.met_at(); }

  WallAccount() = default;

 private:
  WallAccount(std::int64_t start_ns, SpanRecorder* spans, Rank self)
      : start_ns_(start_ns), book_(self, start_time, spans) {}

  std::int64_t start_ns_ = 0;
  bool goes_on_ = false;  // the call in which the run was taken up
  Book book_;
};

// What the parts of an MPI rank share: who it is, its post, its clock and book, and what has been counted so far.
class StateArchive;

class MpiStage {
 public:
  MpiStage(const MpiCluster::Options& options, MpiCommunicators& communicators);

  const MpiCluster::Options& options;
  MpiCommunicators& communicators;
  const Rank self;
  MpiPost post;
  WallAccount clock;
  StepRows rows;  // on the rank that tells the observer

  bool is_worker() const { return self.value < options.workers; }
  bool is_server() const { return !is_worker() && self.value < participants(); }
  bool is_coordinator() const { return self == Rank{0}; }  // of partial all-reduces
  int participants() const { return options.workers + options.servers; }
  Ranks workers() const { return Ranks(options.workers); }
  Ranks servers() const { return Ranks(Rank{options.workers}, options.servers); }
  // Those whose leaving a server is told of: workers, and where servers have servers all.
  Ranks told_of() const { return Ranks(options.servers.regions > 0 ? participants() : options.workers); }
  int number_told_of() const { return options.servers.regions > 0 ? participants() - 1 : options.workers; }
  std::string name_of(Rank rank) const;

  Time now() const { return clock.now(); }
  // This rank's own, with its clock, or what it knows of another worker's work; summed over the ranks at the end.
  Book& book_of(Rank worker) { return worker == self ? clock.book() : books_[worker]; }
  DecidedBy decided_by() const { return options.servers > 0 ? DecidedBy::servers : DecidedBy::workers; }

  bool has_ended(Rank worker) const;
  // Whether all servers have ended.
  bool servers_are_gone() const;
  // Whether all other workers have ended, or never will.
  bool others_are_through() const;

  // Each participant counts what it has sent, and tells so in its messages; a worker adds what it has got
  // from other servers than the receiver, so that a server knows of all.
  Bytes bytes_sent() const;
  Bytes collective_bytes{};      // of all workers, known to each
  Bytes sent_bytes{};            // of this rank, and of collectives that only it counts
  ByRank<Bytes> bytes_told;      // by rank: what the others said last
  std::int64_t collectives = 0;  // that this rank counts
  std::int64_t meetings = 0;     // collectives of all workers that it has come to
  std::int64_t kept_in_collectives = 0;
  std::int64_t kept_in_partial_sums = 0;  // worker 0
  bool has_partial_sums = false;          // as far as is known here

  // How far this rank has come after its program (MpiCluster::Process::finish).
  enum class Ending { none, announced, of_collectives, closed };
  Ending ending = Ending::none;
  Time program_end = start_time;
  bool program_has_ended = false;
  bool is_lost = false;  // in a micro-batch that never ends

  // All but the clock, and where it writes to.
  void keep(StateArchive& archive);

 private:
  ByRank<Book> books_;  // of the other workers
};

}  // namespace syncopate
