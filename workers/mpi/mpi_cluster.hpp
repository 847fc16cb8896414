// The cluster of real processes: one worker per MPI rank, wall clock, delays injected as sleeps. Ranks 0 .. N-1 are
// workers; the ranks from N on serve a method that has servers. Ranks that a method does not need stay idle until its
// run ends, so that one experiment may mix methods with and without servers.
//
// Accounts: a participant's wall time is booked without gaps. Everything between two cluster calls (optimizer steps,
// the algorithm itself) is compute; waiting for the last arrival is wait, the reduction itself communicate.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "workers/base/process.hpp"
#include "workers/base/units.hpp"
#include "workers/cluster/accounting.hpp"
#include "workers/cluster/calls.hpp"
#include "workers/cluster/cluster.hpp"
#include "workers/mpi/mpi_messages.hpp"
#include "workers/mpi/mpi_session.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/outages.hpp"
#include "workers/training/checkpoint_log.hpp"

namespace syncopate {

// One rank's access to the checkpoints of a run. A checkpoint is valid once all ranks have written their part.
class CheckpointStore {
 public:
  virtual ~CheckpointStore() = default;

  // The number of the checkpoint that is to be written now. Rank 0 alone asks, again and again while the run goes on.
  virtual std::optional<std::int64_t> due() = 0;

  struct Written {
    std::optional<std::uint64_t> digest{};  // of the part; none: it could not be written
    std::string problem{};                  // then: why
  };
  virtual Written write(std::int64_t number, const std::function<void(ByteSink&)>& contents) = 0;
  // Called on all ranks once all have written. `digests`: by rank. True: the run ends here (LeftAtCheckpoint).
  virtual bool written(std::int64_t number, const std::vector<std::optional<std::uint64_t>>& digests) = 0;

  // Whether the run resumes from a checkpoint, on all ranks alike; and this participant's part of it.
  virtual bool resumes() const = 0;
  virtual ByteSource& part() = 0;
  // Called once the run has resumed.
  virtual void resumed() = 0;

  // Archives the caller's own state of this rank's run.
  virtual void serialise(StateArchive& archive) = 0;
};

// Thrown through the programs of all ranks where the store ends the run at a checkpoint.
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
    // Called on a rank that fails, before all ranks end: the last chance to save data.
    std::function<void(const std::string& what)> before_abort = {};
    // Null on all ranks: there are no checkpoints. Else this thread keeps a CheckpointLog (CheckpointLog::Scope)
    // from before `training` is used until the run has ended.
    CheckpointStore* store = nullptr;
  };

  // Collective over the communicator. Throws std::invalid_argument if it has too few ranks.
  explicit MpiCluster(const Options& options);
  ~MpiCluster() override;

  int workers() const override;
  Servers servers() const override;

  // Collective: every rank of the communicator calls it, idle ones too. The totals are complete on every rank. An
  // exception of a program ends all ranks through MpiSession::abort with one message that names this rank. Only two are
  // thrown on, on all ranks alike: ReplayMismatch (the run cannot resume from the checkpoint in the store) and
  // LeftAtCheckpoint (the store ends the run at another).
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
  void discard(Rank self, const BookedTime& work) override;
  void keep(Rank self, const BookedTime& work, Step staleness) override;
  Bytes bytes_sent() const override;

 private:
  class Process;  // this rank's part in the run
  std::unique_ptr<Process> process_;
};

// A participant's book by the wall clock: the time between two bookings belongs to the second.
class WallAccount {
 public:
  // Time counts from `start_ns` of the monotonic clock. `spans` (may be null) records all bookings as `self`'s.
  void restart(std::int64_t start_ns, SpanRecorder* spans, Rank self) { *this = WallAccount(start_ns, spans, self); }

  Time now() const { return Time{Duration{monotonic_ns() - start_ns_}}; }
  std::int64_t to_monotonic_ns(Time time) const { return later(time, Duration{start_ns_}).time_since_epoch().count(); }

  // From the last booking until now, or until `end`, which may lie in the past (then clipped).
  void book(Activity activity, const SpanLabel& label = {}) { book_until(activity, now(), label); }
  void book_until(Activity activity, Time end, const SpanLabel& label) { book_.pass(activity, end, label); }

  // Begins a call that may wait: the time since the last one is compute. False, unbooked, if the run resumes in it.
  bool enter() {
    if (std::exchange(resumes_, false)) return false;
    book(Activity::compute);
    return true;
  }
  void enter_unbooked() { resumes_ = false; }

  // From here on time counts from another start: none passes while the run stands still or waits to be resumed.
  void resume_from(std::int64_t start_ns, bool inside_a_call) {
    start_ns_ = start_ns;
    resumes_ = inside_a_call;
  }
  void stood_still(std::int64_t for_ns) { start_ns_ += for_ns; }

  // Makes the account end at T, see Book::take_back; a missing rest counts as waiting.
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
  bool resumes_ = false;  // the call in which the run has resumed
  Book book_;
};

// The state that the parts of an MPI rank share: who it is, its transport, its clock and book, and its counts.
class MpiRunState {
 public:
  MpiRunState(const MpiCluster::Options& options, MpiCommunicators& communicators);

  const MpiCluster::Options& options;
  MpiCommunicators& communicators;
  const Rank self;
  MpiTransport transport;
  WallAccount clock;
  StepRows rows;  // on the rank that tells the observer

  bool is_worker() const { return self.value < options.workers; }
  bool is_server() const { return !is_worker() && self.value < participants(); }
  bool is_coordinator() const { return self == Rank{0}; }  // of partial all-reduces
  int participants() const { return options.workers + options.servers; }
  Ranks workers() const { return Ranks(options.workers); }
  Ranks servers() const { return Ranks(Rank{options.workers}, options.servers); }
  // A server is notified when these leave: workers, and with regional servers all participants.
  Ranks notified_of() const { return Ranks(options.servers.regions > 0 ? participants() : options.workers); }
  int number_notified() const { return options.servers.regions > 0 ? participants() - 1 : options.workers; }
  std::string name_of(Rank rank) const { return options.servers.name_of(rank, options.workers); }

  Time now() const { return clock.now(); }
  // This rank's own book, with its clock, or what it knows of another worker's work; summed over the ranks at the end.
  Book& book_of(Rank worker) { return worker == self ? clock.book() : books_[worker]; }
  DecidedBy decided_by() const { return options.servers > 0 ? DecidedBy::servers : DecidedBy::workers; }

  bool has_ended(Rank worker) const {
    return worker == self ? program_has_ended : transport.has_announced(MpiTransport::Announcement::ended, worker);
  }
  // Whether all of them have ended.
  bool servers_are_gone() const {
    return options.servers > 0 && is_worker() &&
           transport.count_announced(MpiTransport::Announcement::ended, options.workers, participants()) ==
               options.servers;
  }
  // Whether all other workers have ended, or never will.
  bool others_are_through() const;

  // Each participant counts what it has sent, and says so in its messages. A worker adds what it has got from other
  // servers than the receiver, so that a server knows of all.
  Bytes bytes_sent() const {
    return std::accumulate(bytes_reported.begin(), bytes_reported.end(), collective_bytes + sent_bytes);
  }
  Bytes collective_bytes{};             // of all workers, known to each
  Bytes sent_bytes{};                   // of this rank, and of collectives that only it counts
  ByRank<Bytes> bytes_reported;         // as the others said last
  std::int64_t collectives = 0;         // counted by this rank
  std::int64_t collectives_of_all = 0;  // collectives of all workers that it has come to
  std::int64_t kept_in_collectives = 0;
  std::int64_t kept_in_partial_sums = 0;  // worker 0
  bool has_partial_sums = false;          // as far as is known here

  // How far this rank has come after its program (MpiCluster::Process::finish).
  enum class Ending { none, announced, closed };
  Ending ending = Ending::none;
  Time program_end = start_time;
  bool program_has_ended = false;
  bool is_lost = false;  // in a micro-batch that never ends

  // Archives all but the clock and its recorder.
  void serialise(StateArchive& archive);

 private:
  ByRank<Book> books_;  // of the other workers
};

}  // namespace syncopate
