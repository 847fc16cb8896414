// How an MPI rank waits: politely, with progress for all that is under way; and if all wait so and nobody can go on,
// the run has failed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "workers/mpi/mpi_stage.hpp"
#include "workers/mpi/mpi_wait.hpp"
#include "workers/mpi/mpi_wait_rounds.hpp"

namespace syncopate {

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
