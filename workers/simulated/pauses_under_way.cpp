#include "workers/simulated/pauses_under_way.hpp"

#include <algorithm>
#include <utility>

namespace syncopate {

Duration PausesUnderWay::sleep_after(const MicroBatch& slot) const {
  if (none()) return {};
  return stage_.options.pauses->sleep(slot.worker, slot.step, static_cast<std::uint32_t>(slot.index));
}

void PausesUnderWay::begin_one(Rank worker, const MicroBatch& slot, const Deadline& deadline) {
  pauses_[worker] = {.sleep = sleep_after(slot),
                     .cut_at = deadline.at,
                     .trailing_until = later(stage_[worker].book.now(), stage_.options.pauses->trailing())};
}

// The sleep, of which the deadline leaves what lies before it, and the trailing work beside it. A sleep that is cut
// ends past the deadline, as real ones do, so that no check takes it for in time.
void PausesUnderWay::end_one(Rank worker) {
  const Time now = stage_[worker].book.now();
  const Pause pause = std::exchange(pauses_[worker], {});
  const Duration left = std::max(later(pause.cut_at, Duration{1}) - now, Duration{});
  pass(worker, std::max(later(now, std::min(pause.sleep, left)), pause.trailing_until), "sleep");
}

void PausesUnderWay::pass(Rank worker, Time until, const char* what) {
  Book& book = stage_[worker].book;
  if (until <= book.now()) return;
  stage_.check_clock(worker, until);
  book.pass(Activity::compute, until, {what});
}

}  // namespace syncopate
