// How an MPI rank waits: politely, while its messages and collectives progress. If no rank can continue, the run fails.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "workers/mpi/mpi_cluster.hpp"

namespace syncopate {

// The pause of a rank that has waited for `waited_ns`, during which its core is free for computing ranks. It is a
// hundredth of that time, which lengthens a wait by at most one per cent, but at least 20 us.
inline std::int64_t polite_pause_ns(std::int64_t waited_ns, std::int64_t longest_ns) {
  return std::clamp<std::int64_t>(waited_ns / 100, 20'000, longest_ns);
}

// Waits until `done` returns true. MPI's own blocking calls poll without pause, which starves the other ranks if there
// are more ranks than cores. If every rank has its own core, this function spins for the first millisecond, so its
// latency is that of a blocking call. If cores are short, it sleeps after every fifth look: in each look MPI yields to
// ranks on the same core, whose messages then cost no pause. After the first millisecond it sleeps after every look,
// for 20 to 100 us, and never beyond `until_ns`. Throws Interrupted.
template <typename Done>
void wait_politely(bool cores_suffice, Done done, std::int64_t until_ns = std::numeric_limits<std::int64_t>::max()) {
  constexpr std::int64_t spin_ns = 1'000'000;
  constexpr int looks_before_pause = 5;
  if (done()) return;
  const std::int64_t begin = monotonic_ns();
  for (int looks = 1;; ++looks) {
    if (done()) return;
    const std::int64_t now = monotonic_ns();
    if (now - begin < spin_ns && (cores_suffice || looks % looks_before_pause != 0)) continue;
    throw_if_interrupted();
    sleep_until_monotonic(std::min(now + polite_pause_ns(now - begin, 100'000), std::max(now, until_ns)));
  }
}
// Calls `meanwhile`, if given, repeatedly during the wait.
inline void wait_politely_for(MPI_Request& request, bool cores_suffice, const std::function<void()>& meanwhile = {}) {
  wait_politely(cores_suffice, [&] {
    if (is_done(request)) return true;
    if (meanwhile) meanwhile();
    return false;
  });
}

// Collective: gathers the values of all ranks, in the order of ranks; each rank has the same number of values.
template <typename T>
std::vector<T> gather_politely(const std::vector<T>& own, MPI_Comm ranks, bool cores_suffice,
                               const std::function<void()>& meanwhile = {}) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(own.size() * static_cast<std::size_t>(ranks_of(ranks)));
  const int bytes = mpi_count(own.size() * sizeof(T));
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(own.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, ranks, &request);
  wait_politely_for(request, cores_suffice, meanwhile);
  return all;
}

// Collective: gathers a text of each rank, cut to 255 bytes.
std::vector<std::string> gather_texts(const std::string& own, MPI_Comm ranks, bool cores_suffice);

// A rank's report of what it waits for.
struct WaitReport {
  std::int64_t wait = 0;  // number of this rank's waits so far
  std::int64_t frames_sent = 0;
  std::int64_t frames_received = 0;
  bool at_the_end = false;  // it waits for the end of the run, where all ranks meet; false: for frames

  bool operator==(const WaitReport&) const = default;
};

// Whether the ranks of a run wait for each other for ever, according to two consecutive rounds of reports, by rank. A
// rank enters a round only while it waits, and enters the next one only after the round has taken place. A round takes
// place once every rank has entered it. So if two rounds in a row report the same for every rank, all ranks were
// waiting at the end of the first round. If no frame was under way then, nothing can end any wait. No time-out is
// involved: a rank that computes, sleeps or is merely slow enters no round. Waits that end at a given time must not be
// reported.
bool nobody_can_continue(const std::vector<WaitReport>& before, const std::vector<WaitReport>& after);

// The rounds that detect a deadlock: non-blocking collectives that a rank joins while it waits.
class MpiWaitRounds {
 public:
  // `communicator` is for the rounds alone, and contains all ranks of the run.
  explicit MpiWaitRounds(MPI_Comm communicator);
  MpiWaitRounds(const MpiWaitRounds&) = delete;
  MpiWaitRounds& operator=(const MpiWaitRounds&) = delete;

  // Whether a rank that has waited since `since_ns` (of the monotonic clock) should call `join`; cheap.
  bool is_due(std::int64_t since_ns) const;

  // A waiting rank calls it repeatedly. Before each call it must find that nothing has arrived that ends its wait, and
  // that no frame is partly sent or received. Returns true, once and on all ranks, if no rank can continue.
  bool join(const WaitReport& own);

  // Collective over `everyone`, the same ranks, once no rank waits any more. Completes rounds that are incomplete.
  void finish(MPI_Comm everyone, bool cores_suffice);

 private:
  void join_next(const WaitReport& own) {
    ++joined_;
    own_ = own;
    MPI_Iallgather(&own_, sizeof(WaitReport), MPI_BYTE, reports_.data(), sizeof(WaitReport), MPI_BYTE, communicator_,
                   &round_);
  }

  MPI_Comm communicator_;
  std::int64_t joined_ = 0;  // number of rounds
  MPI_Request round_ = MPI_REQUEST_NULL;
  WaitReport own_;                   // read by the round under way
  std::vector<WaitReport> reports_;  // written by the round under way
  std::vector<WaitReport> last_reports_;
  std::int64_t next_look_ns_ = 0;
  bool is_over_ = false;
};

// The event that a rank waits for.
struct Awaited {
  const Place* place = nullptr;  // call in the algorithm; null after the rank's program has ended
  std::optional<Rank> from{};    // set: the rank waits only for a message of this rank
  const char* state = nullptr;   // text that replaces the description of the wait
  bool at_the_end = false;       // WaitReport::at_the_end
};

class MpiWaiting {
 public:
  // `progress` advances messages and collectives. `stop` stops this rank if all ranks must stop for a checkpoint.
  MpiWaiting(MpiRunState& state, std::function<void()> progress, std::function<void()> stop)
      : state_(state), rounds_(state.communicators.waits()), progress_(std::move(progress)), stop_(std::move(stop)) {}

  // Call them wherever this rank waits or sleeps.
  void progress() { progress_(); }
  void stop() { stop_(); }

  // Waits until `done` returns true, or until `until`.
  template <typename Done>
  void wait(const Awaited& awaited, Done done, Time until = never) {
    begin();
    wait_politely(
        cores_suffice(), [&] { return progress_and_ask(awaited, done, until); }, state_.clock.to_monotonic_ns(until));
  }
  // Like `wait`, with longer pauses, which `pause` returns. Returns whether `done` returned true.
  template <typename Done, typename Pause>
  bool sleep(const Awaited& awaited, Done done, Time until, Pause pause) {
    begin();
    for (Time at = state_.now(); at < until; at = state_.now()) {
      throw_if_interrupted();
      if (progress_and_ask(awaited, done, until)) return true;
      const Time wake = std::min(until, later(at, pause()));
      if (wake > at) sleep_until_monotonic(state_.clock.to_monotonic_ns(wake));
    }
    return false;
  }
  // Waits for a condition that other ranks are sure to fulfil, but maybe late.
  template <typename Done>
  void wait_for_others(Done done) {
    wait_politely(cores_suffice(), [&] {
      if (done()) return true;
      progress();
      stop();
      return done();
    });
  }
  // Waits for values that are being sent, without pauses if cores suffice, because MPI advances only when it is called.
  template <typename Done>
  void wait_for_values(Done done) {
    wait_politely(cores_suffice(), [&] {
      while (!done()) {
        throw_if_interrupted();
        progress();
        if (!cores_suffice()) return done();
      }
      return true;
    });
  }
  // Waits for the end of the run, a collective of all ranks.
  void wait_for_the_end(MPI_Request request, const char* state) {
    begin();
    wait_politely_for(request, cores_suffice(), [&] { look_for_deadlock({.state = state, .at_the_end = true}); });
    rounds_.finish(state_.communicators.everyone(), cores_suffice());
  }

 private:
  bool cores_suffice() const { return state_.communicators.cores_suffice(); }
  void begin() {
    ++waits_;
    waiting_since_ns_ = monotonic_ns();
  }
  template <typename Done>
  bool progress_and_ask(const Awaited& awaited, Done& done, Time until) {
    progress();
    if (done()) return true;
    stop();
    if (until == never) look_for_deadlock(awaited);  // a wait with a limit ends by itself
    return false;
  }
  // Call it after this rank has found that its wait cannot end yet.
  void look_for_deadlock(const Awaited& awaited);

  MpiRunState& state_;
  MpiWaitRounds rounds_;
  std::function<void()> progress_;
  std::function<void()> stop_;
  std::int64_t waits_ = 0;  // number of waits so far
  std::int64_t waiting_since_ns_ = 0;
};

}  // namespace syncopate
