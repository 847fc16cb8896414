// Pauses of the simulated cluster (workers/delays/pauses.hpp): a micro-batch leaves one behind, and what the worker
// does next waits for it.
#include <algorithm>
#include <utility>

#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {

Duration SimulatedCluster::sleep_after(Rank, const MicroBatch& slot) const {
  if (!options_.pauses) return {};
  return options_.pauses->sleep(slot.worker, slot.step, static_cast<std::uint32_t>(slot.index));
}

void SimulatedCluster::begin_pause(Rank rank, const MicroBatch& slot, const Deadline& deadline) {
  pauses_[index(rank)] = {.sleep = sleep_after(rank, slot),
                          .cut_at = deadline.at,
                          .trailing_until = later(now(rank), options_.pauses->trailing())};
}

// The sleep, of which the deadline leaves what lies before it, and the trailing work beside it. A sleep that is cut
// ends past the deadline, as real ones do, so that no check takes it for in time.
void SimulatedCluster::end_pause(Rank rank) {
  const Pause pause = std::exchange(pauses_[index(rank)], {});
  const Duration left = std::max(later(pause.cut_at, Duration{1}) - now(rank), Duration{});
  pass_time(rank, std::max(later(now(rank), std::min(pause.sleep, left)), pause.trailing_until), "sleep");
}

void SimulatedCluster::end_trailing_work(Rank rank) {
  pass_time(rank, pauses_[index(rank)].trailing_until, "trailing work");
}

// Counts as computing: it belongs to the micro-batch before.
void SimulatedCluster::pass_time(Rank rank, Time until, const char* what) {
  if (until <= now(rank)) return;
  check_clock(rank, until);
  self(rank).book.pass(Activity::compute, until, {what});
}

}  // namespace syncopate
