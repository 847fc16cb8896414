// A participant's book by the wall clock: what lies between two bookings belongs to the second.
#pragma once

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

  // Makes the account end at T, see Book::take_back; what is missing was spent waiting.
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
  Book book_;
};

}  // namespace syncopate
