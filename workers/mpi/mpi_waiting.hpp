// How an MPI rank waits: politely, with progress for all that is under way. A run in which nobody can go on fails.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "workers/mpi/mpi_cluster.hpp"

namespace syncopate {

// A rank's report of its wait.
struct WaitReport {
  enum class For : std::int32_t {
    frames,             // or the announcements of others, which are frames too
    collective_of_all,  // of all workers
    the_end,            // of the run, where all ranks meet
  };
  static constexpr std::int64_t needed_at_no_collective = -1;

  std::int64_t wait = 0;  // its number among this rank's waits
  std::int64_t frames_sent = 0;
  std::int64_t frames_received = 0;
  std::int64_t collectives_of_all = needed_at_no_collective;  // a worker: how many it has come to
  std::int64_t collective_of_all = 0;                         // the one it waits at, counted from 1
  For what = For::frames;

  bool operator==(const WaitReport&) const = default;
};

// Whether the ranks of a run wait for each other for ever, by two rounds of reports, by rank. A round takes place once
// every rank has come to it, waiting; a rank comes to the next one only after that. So if two rounds in a row say the
// same of every rank, all of them waited at the end of the first. If no frame was under way then, nothing can end any
// wait. No time-out is part of that: a rank that computes, sleeps a delay or is merely slow comes to no round. Waits
// that end by themselves (at a given time) must not be reported.
bool nobody_can_continue(const std::vector<WaitReport>& before, const std::vector<WaitReport>& after);

// The rounds that find a deadlock: non-blocking collectives that a rank joins while it waits.
class MpiWaitRounds {
 public:
  // `communicator` belongs to the rounds alone, and has all ranks of the run.
  explicit MpiWaitRounds(MPI_Comm communicator);
  MpiWaitRounds(const MpiWaitRounds&) = delete;
  MpiWaitRounds& operator=(const MpiWaitRounds&) = delete;

  // Whether a rank that waits since `since_ns` (of the monotonic clock) should call join; cheap.
  bool is_due(std::int64_t since_ns) const;

  // A waiting rank calls it again and again, each time after it has found that nothing has come that would let it go
  // on, and that it has no frame half sent or half received. True, once and on all ranks, if nobody can go on.
  bool join(const WaitReport& own);

  // Collective, once nobody can go on. On rank 0: every rank's text, by rank; elsewhere empty.
  std::vector<std::string> gather(const std::string& own) const;

  // Collective over `everyone`, the same ranks, when none of them waits any more: completes what some have joined.
  void finish(MPI_Comm everyone, bool cores_suffice);

 private:
  void join_next(const WaitReport& own) {
    ++joined_;
    own_ = own;
    MPI_Iallgather(&own_, sizeof(WaitReport), MPI_BYTE, reports_.data(), sizeof(WaitReport), MPI_BYTE, communicator_,
                   &round_);
  }

  MPI_Comm communicator_;
  std::int64_t joined_ = 0;  // rounds
  MPI_Request round_ = MPI_REQUEST_NULL;
  WaitReport own_;                   // read by the round that is under way
  std::vector<WaitReport> reports_;  // written by it
  std::vector<WaitReport> last_reports_;
  std::int64_t next_look_ns_ = 0;
  bool is_over_ = false;
};

// A rank's wait for others.
struct Awaited {
  const Place* place = nullptr;        // in the algorithm; null where its program has ended
  std::optional<Rank> from{};          // a message of this rank alone
  const char* state = nullptr;         // to say instead
  std::int64_t collective_of_all = 0;  // of all workers, counted from 1
  WaitReport::For what = WaitReport::For::frames;
};

class MpiWaiting {
 public:
  // `progress` lets messages and collectives go on. `stop` waits for as long as all ranks are to stand still.
  MpiWaiting(MpiRunState& state, MpiWaitRounds& rounds, std::function<void()> progress, std::function<void()> stop)
      : state_(state), rounds_(rounds), progress_(std::move(progress)), stop_(std::move(stop)) {}

  // Call them wherever this rank waits or sleeps.
  void progress() { progress_(); }
  void stop() { stop_(); }

  // Waits until `done`, or that time.
  template <typename Done>
  void wait(const Awaited& awaited, Done done, Time until = never) {
    begin();
    const auto progress_and_ask = [&] {
      progress();
      if (done()) return true;
      stop();
      if (until == never) look_for_deadlock(awaited);  // else it ends by itself
      return false;
    };
    wait_politely(state_.communicators.cores_suffice(), progress_and_ask, state_.clock.to_monotonic_ns(until));
  }
  // The same where the others are sure to come.
  template <typename Done>
  void wait_for_progress(Done done) {
    wait_politely(state_.communicators.cores_suffice(), [&] {
      if (!done()) progress();
      return done();
    });
  }

  // The same where they may come late.
  template <typename Done>
  void wait_for_others(Done done) {
    wait_for_progress([&] {
      if (done()) return true;
      stop();
      return done();
    });
  }

  // The same for values on their way, without pauses where cores suffice: MPI moves a piece of them at each call.
  template <typename Done>
  void wait_for_values(Done done) {
    while (state_.communicators.cores_suffice() && !done()) {
      if (interrupted()) throw Interrupted();
      progress();
    }
    wait_for_progress(done);
  }

  void begin() {
    ++waits_;
    waiting_since_ns_ = monotonic_ns();
  }
  // Call it again and again in a wait, after this rank has found that it cannot go on.
  void look_for_deadlock(const Awaited& awaited);

 private:
  std::string explain_deadlock(const std::vector<std::string>& states) const;

  MpiRunState& state_;
  MpiWaitRounds& rounds_;
  std::function<void()> progress_;
  std::function<void()> stop_;
  std::int64_t waits_ = 0;  // begun so far
  std::int64_t waiting_since_ns_ = 0;
};

}  // namespace syncopate
