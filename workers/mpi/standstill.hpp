// When the ranks of a run under MPI wait for each other for ever. Each rank that waits says so in rounds: a round
// takes place once every rank has come to it, waiting. A rank comes to the next round only after that, so if two
// rounds in a row say the same of every rank, there was a moment between them, the end of the first, at which all
// of them waited; and if then no letter was under way, nothing can ever end any of the waits. No time-out is part
// of that: a rank that computes, sleeps a delay or is merely slow comes to no round.
#pragma once

#include <cstdint>
#include <vector>

namespace syncopate {

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

}  // namespace syncopate
