// How an MPI rank waits: politely, with progress for all that is under way; and if all wait so and nobody can go on,
// the run has failed.
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

// When the ranks of a run under MPI wait for each other for ever. Each rank that waits says so in rounds: a round
// takes place once every rank has come to it, waiting. A rank comes to the next round only after that, so if two
// rounds in a row say the same of every rank, there was a moment between them, the end of the first, at which all
// of them waited; and if then no letter was under way, nothing can ever end any of the waits. No time-out is part
// of that: a rank that computes, sleeps a delay or is merely slow comes to no round.
// What a rank says of its wait.
struct WaitReport {
  enum class For : std::int32_t {
    letters,  // or the announcements of others, which are letters too
    meeting,  // of all workers
    the_end,  // of the run, at which all ranks meet
  };
  static constexpr std::int64_t needed_at_no_meeting = -1;

  std::int64_t wait = 0;  // its number among this rank's waits
  std::int64_t letters_sent = 0;
  std::int64_t letters_received = 0;
  std::int64_t meetings = needed_at_no_meeting;  // a worker: how many it has come to
  std::int64_t meeting = 0;                      // of these the one it waits at, counted from 1
  For what = For::letters;

  bool operator==(const WaitReport&) const = default;
};

// By two rounds of reports, by rank. Waits that can end by themselves (at a given time) must not be reported.
bool nobody_can_go_on(const std::vector<WaitReport>& before, const std::vector<WaitReport>& after);

// The rounds in which a standstill is found, as non-blocking collectives that a rank joins while it waits.
class MpiWaitRounds {
 public:
  // `communicator` belongs to the rounds alone, and has all ranks of the run.
  explicit MpiWaitRounds(MPI_Comm communicator);
  MpiWaitRounds(const MpiWaitRounds&) = delete;
  MpiWaitRounds& operator=(const MpiWaitRounds&) = delete;

  // Whether a rank that waits since `since_ns` (of the monotonic clock) should call join; cheap.
  bool is_due(std::int64_t since_ns) const;

  // To be called again and again by a rank that waits, each time after it has found that nothing has come that would
  // let it go on, and that it has no letter half sent or half received. True, once and on all ranks, if nobody can
  // go on.
  bool join(const WaitReport& own);

  // Collective, once nobody can go on. On rank 0: what every rank says, by rank; elsewhere empty.
  std::vector<std::string> gather(const std::string& own) const;

  // Collective over `everyone`, the same ranks, when none of them waits any more: completes what some have joined.
  void finish(MPI_Comm everyone, bool cores_suffice);

 private:
  void join_next(const WaitReport& own);

  MPI_Comm communicator_;
  int size_ = 1;
  std::int64_t joined_ = 0;  // rounds
  MPI_Request round_ = MPI_REQUEST_NULL;
  WaitReport own_;                   // read by the round that is under way
  std::vector<WaitReport> reports_;  // written by it
  std::vector<WaitReport> last_reports_;
  std::int64_t next_look_ns_ = 0;
  bool is_over_ = false;
};

// What a rank waits for that only others can bring.
struct Awaited {
  const Place* place = nullptr;  // in the algorithm; null where its program has ended
  std::optional<Rank> from{};    // a message of this rank alone
  const char* state = nullptr;   // to say instead
  std::int64_t meeting = 0;      // of all workers, counted from 1
  WaitReport::For what = WaitReport::For::letters;
};

class MpiWaiting {
 public:
  // `progress` lets messages, collectives and partial all-reduces go on.
  // `stop` stands still where all ranks are to do so, and returns when they go on.
  MpiWaiting(MpiStage& stage, MpiWaitRounds& rounds, std::function<void()> progress, std::function<void()> stop)
      : stage_(stage), rounds_(rounds), progress_(std::move(progress)), stop_(std::move(stop)) {}

  // To be called wherever this rank waits or sleeps.
  void progress() { progress_(); }
  void stop() { stop_(); }

  // Until `done`, or that time.
  template <typename Done>
  void wait(const Awaited& awaited, Done done, Time until = never) {
    begin();
    const auto progress_and_ask = [&] {
      progress();
      if (done()) return true;
      stop();
      if (until == never) look_for_standstill(awaited);  // else it ends by itself
      return false;
    };
    wait_politely(stage_.communicators.cores_suffice(), progress_and_ask, stage_.clock.to_monotonic_ns(until));
  }
  // Where the others are sure to come.
  template <typename Done>
  void wait_for_progress(Done done) {
    wait_politely(stage_.communicators.cores_suffice(), [&] {
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

  // The same for values that are on their way: MPI moves a piece of them at each call, so that where cores suffice
  // there is no pause between calls.
  template <typename Done>
  void wait_for_values(Done done) {
    while (stage_.communicators.cores_suffice() && !done()) {
      if (interrupted()) throw Interrupted();
      progress();
    }
    wait_for_progress(done);
  }

  void begin();
  // To be called again and again in a wait, after this rank has found that it cannot go on.
  void look_for_standstill(const Awaited& awaited);

 private:
  std::string explain_standstill(const std::vector<std::string>& states) const;
  std::string state_of(const Awaited& awaited) const;

  MpiStage& stage_;
  MpiWaitRounds& rounds_;
  std::function<void()> progress_;
  std::function<void()> stop_;
  std::int64_t waits_ = 0;  // begun so far
  std::int64_t waiting_since_ns_ = 0;
};

}  // namespace syncopate
