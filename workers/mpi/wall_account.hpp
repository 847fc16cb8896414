// A participant's book by the wall clock: what lies between two bookings belongs to the second.
#pragma once

#include <cstdint>
#include <utility>

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

  // A call begins that may wait: what lies between the last one and this is compute. False where the call had begun
  // before the run was taken up, and goes on: that is booked already.
  bool enter() {
    if (std::exchange(goes_on_, false)) return false;
    book(Activity::compute);
    return true;
  }
  void enter_unbooked() { goes_on_ = false; }

  // From here on time counts from another start: while the run stood still, or was not there, none has passed.
  void go_on_from(std::int64_t start_ns, bool inside_a_call) {
    start_ns_ = start_ns;
    goes_on_ = inside_a_call;
  }
  void stood_still(std::int64_t for_ns) { start_ns_ += for_ns; }

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
  bool goes_on_ = false;  // the call in which the run was taken up
  Book book_;
};

}  // namespace syncopate
