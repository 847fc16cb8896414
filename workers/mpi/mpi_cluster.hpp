// The cluster of real processes: one worker per MPI rank, wall clock, delays injected as sleeps. Ranks 0 .. N-1 are
// workers; the ranks from N on are servers, if the method has servers. Ranks that a method does not need stay idle
// until its run ends, so that one experiment may mix methods with and without servers.
//
// Accounts: all of a participant's wall time is booked. The time between two cluster calls (optimizer steps, the
// algorithm itself) is compute. In a collective, waiting for the last member is wait, the rest communicate.
#pragma once

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

  // The number of the checkpoint to write now, if one is due. Only rank 0 calls it, repeatedly during the run.
  virtual std::optional<std::int64_t> due() = 0;

  // Returns the part's digest; nullopt if the part could not be written.
  virtual std::optional<std::uint64_t> write(std::int64_t number, const std::function<void(ByteSink&)>& contents) = 0;
  // Called on all ranks once every rank has written its part. `digests`: by rank. True: the run ends
  // (LeftAtCheckpoint).
  virtual bool written(std::int64_t number, const std::vector<std::optional<std::uint64_t>>& digests) = 0;

  // Whether the run resumes from a checkpoint; the same on all ranks. `part`: this rank's part of that checkpoint.
  virtual bool resumes() const = 0;
  virtual ByteSource& part() = 0;
  virtual void resumed() = 0;

  // Archives the state that the caller keeps for this rank's run.
  virtual void serialise(StateArchive& archive) = 0;
};

// Thrown through the programs of all ranks if the store ends the run at a checkpoint.
struct LeftAtCheckpoint {};

struct MpiOptions {
  int workers = 1;
  Servers servers{};
  const ComputeTime& compute_time;
  Pace pace = Pace::inject;             // time-only runs compute nothing, so they always emulate
  Training& training;                   // its executor should have no threads: a rank computes within each call
  RunObserver* observer = nullptr;      // may be null; worker 0 reports rounds
  RunRecord* record = nullptr;          // null on all ranks: nothing is recorded. Complete on rank 0 after the run
  const OutagePlan* outages = nullptr;  // null on all ranks: no outages. Ranks sleep through outages
  const MpiSession& session;
  // Called on a rank that fails, before all ranks end, to save data.
  std::function<void(const std::string& what)> before_abort = {};
  // Null on all ranks: no checkpoints. With a store, this thread must hold a CheckpointLog (CheckpointLog::Scope)
  // from before the first use of `training` until the run has ended.
  CheckpointStore* store = nullptr;
};

// Collective over the session. Throws std::invalid_argument if it has too few ranks.
//
// `run` is collective: every rank of the session calls it once, including idle ranks. The totals are complete on every
// rank. An exception of a program ends all ranks through MpiSession::abort, with one message that names this rank. Two
// exceptions are instead rethrown on all ranks: ReplayMismatch (the run cannot resume from the store's checkpoint) and
// LeftAtCheckpoint (the store ends the run at a checkpoint).
std::unique_ptr<Cluster> make_mpi_cluster(const MpiOptions& options);

// A participant's book on the wall clock. The time between two bookings belongs to the second booking.
class WallAccount {
 public:
  // `spans` records all bookings as those of `self`; may be null.
  WallAccount(SpanRecorder* spans, Rank self) : book_(self, start_time, spans) {}

  Time now() const { return Time{Duration{monotonic_ns() - start_ns_}}; }
  std::int64_t to_monotonic_ns(Time time) const { return later(time, Duration{start_ns_}).time_since_epoch().count(); }

  // Books the time since the last booking. With `end`: only until then, and nothing if `end` is before that booking.
  void book(Activity activity, const SpanLabel& label = {}) { book_until(activity, now(), label); }
  void book_until(Activity activity, Time end, const SpanLabel& label) { book_.pass(activity, end, label); }

  // Begins a call that may wait: books the time since the last call as compute. Returns false, and books nothing, if
  // the run has resumed in the middle of this call.
  bool enter() {
    if (std::exchange(resumes_, false)) return false;
    book(Activity::compute);
    return true;
  }
  void enter_unbooked() { resumes_ = false; }

  // Time counts from `start_ns` of the monotonic clock. `inside_a_call`: the run resumes in the middle of a call.
  void start_at(std::int64_t start_ns, bool inside_a_call) {
    start_ns_ = start_ns;
    resumes_ = inside_a_call;
  }
  void stood_still(std::int64_t for_ns) { start_ns_ += for_ns; }

  // Ends the account at time `end` (Book::take_back). If the account ends earlier, the rest is booked as waiting.
  Duration close(Time end) {
    book_until(Activity::wait, end, {"end of the run"});
    return book_.take_back(end);
  }

  Book& book() { return book_; }
  Time booked() const { return book_.now(); }  // time until which everything is booked

 private:
  std::int64_t start_ns_ = monotonic_ns();
  bool resumes_ = false;  // the run has resumed in the middle of the next call
  Book book_;
};

// The state that the parts of an MPI rank share: its rank, transport, clock, book and counts.
class MpiRunState {
 public:
  MpiRunState(const MpiOptions& options, RunObserver* gets_rows);

  const MpiOptions& options;
  MpiCommunicators communicators;
  const Rank self;
  MpiTransport transport;
  SpanRecorder* const spans;  // null: this rank records no spans
  WallAccount clock;
  StepRows rows;  // used on the rank that reports to the observer

  bool is_worker() const { return self.value < options.workers; }
  bool is_server() const { return !is_worker() && takes_part(); }
  bool takes_part() const { return self.value < participants(); }  // false: the rank is idle
  bool is_coordinator() const { return self == Rank{0}; }          // coordinates partial all-reduces
  int participants() const { return options.workers + options.servers; }
  Ranks workers() const { return Ranks(options.workers); }
  Ranks servers() const { return Ranks(Rank{options.workers}, options.servers); }
  // The participants of whose end a server is notified: workers, and with regional servers all participants.
  Ranks notified_of() const { return Ranks(options.servers.regions > 0 ? participants() : options.workers); }
  int number_notified() const { return options.servers.regions > 0 ? participants() - 1 : options.workers; }
  std::string name_of(Rank rank) const { return options.servers.name_of(rank, options.workers); }

  Time now() const { return clock.now(); }
  // This rank's own book, or its book of another worker's gradients. Books are summed over the ranks at the end.
  Book& book_of(Rank worker) { return worker == self ? clock.book() : books_[worker]; }
  DecidedBy decided_by() const { return options.servers > 0 ? DecidedBy::servers : DecidedBy::workers; }

  bool has_ended(Rank worker) const {
    return worker == self ? program_has_ended : transport.has_announced(MpiTransport::Announcement::ended, worker);
  }
  bool servers_are_gone() const {
    return options.servers > 0 && is_worker() &&
           transport.count_announced(MpiTransport::Announcement::ended, options.workers, participants()) ==
               options.servers;
  }
  // Whether every other worker has ended or is in a micro-batch that never ends.
  bool others_are_through() const;

  // Each participant counts the bytes that it has sent and reports the count in its messages. A worker adds the bytes
  // that it received from servers other than the receiver, so that each server knows of all bytes.
  Bytes bytes_sent() const {
    return std::accumulate(bytes_reported.begin(), bytes_reported.end(), collective_bytes + sent_bytes);
  }
  Bytes collective_bytes{};      // bytes of collectives of all workers; the same on each worker
  Bytes sent_bytes{};            // sent by this rank, including the bytes of groups' collectives that this rank counts
  ByRank<Bytes> bytes_reported;  // by participant: the count that it reported last
  std::int64_t collectives = 0;  // number that this rank counts
  std::int64_t collectives_of_all = 0;  // number of collectives of all workers that this worker has entered
  std::int64_t kept_in_collectives = 0;
  std::int64_t kept_in_partial_sums = 0;  // on worker 0
  bool has_partial_sums = false;          // whether this rank knows of a partial all-reduce

  // The progress of this rank after its program (MpiCluster::finish).
  enum class Ending { none, announced, closed };
  Ending ending = Ending::none;
  Time program_end = start_time;
  bool program_has_ended = false;
  bool is_lost = false;  // the rank is in a micro-batch that never ends

  // See Cluster. `bytes`: bytes that this worker has sent and that servers have sent to it.
  void keep(const BookedTime& work, Step staleness);
  void report_steps(const Contribution& contribution, Bytes bytes);
  std::vector<StepRow> own_steps;  // rows of this worker's steps, in methods without collectives
  std::vector<std::int64_t> staleness_counts;

  // Archives everything except the clock, its recorder, and the two vectors above.
  void serialise(StateArchive& archive);

 private:
  ByRank<Book> books_;  // the other workers' books
};

}  // namespace syncopate
