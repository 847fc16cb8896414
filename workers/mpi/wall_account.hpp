// A participant's book by the wall clock: what lies between two bookings belongs to the second.
#pragma once

#include <algorithm>

#include "workers/cluster/book.hpp"
#include "workers/mpi/mpi_wait.hpp"

namespace syncopate {

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

  // Makes the account end at T: what is missing was spent waiting; what lies beyond (a farewell that
  // nobody needed any more) is taken back: as the spans have it, or else last things first. Returns what was
  // taken from compute, of micro-batches where spans tell them apart.
  Duration close(Time end) {
    book_until(Activity::wait, end, {"end of the run"});
    Account& account = book_.account();
    if (const auto removed = book_.spans() ? book_.spans()->remove_beyond(self_, end) : std::nullopt) {
      for (std::size_t i = 0; i < activities; ++i) account.time[i] -= removed->account.time[i];
      return removed->micro_batches;
    }
    const Duration computed = account[Activity::compute];
    Duration beyond = book_.now() - end;
    for (const Activity activity :
         {Activity::wait, Activity::communicate, Activity::compute, Activity::discarded, Activity::down}) {
      const Duration taken = std::min(beyond, account[activity]);
      account[activity] -= taken;
      beyond -= taken;
    }
    return computed - account[Activity::compute];
  }

  const Account& account() const { return book_.account(); }
  Time booked() const { return book_.now(); }  // everything before it is booked
  void meet() { book_.meet(); }
  Time met_at() const { return book_.met_at(); }

  WallAccount() = default;

 private:
  WallAccount(std::int64_t start_ns, SpanRecorder* spans, Rank self)
      : start_ns_(start_ns), self_(self), book_(self, start_time, spans) {}

  std::int64_t start_ns_ = 0;
  Rank self_{};
  Book book_;
};

}  // namespace syncopate
