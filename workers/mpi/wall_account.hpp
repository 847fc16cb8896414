// Books a participant's wall time without gaps: what lies between two bookings belongs to the second.
#pragma once

#include <algorithm>

#include "workers/cluster/account.hpp"
#include "workers/cluster/span_recorder.hpp"
#include "workers/mpi/mpi_wait.hpp"

namespace syncopate {

// What a booking is for, where spans are recorded (see Span).
struct SpanLabel {
  const char* what = "algorithm";  // between the calls
  Step step{-1};
  int micro_batch = -1;
};

class WallAccount {
 public:
  // Time counts from `start_ns` of the machine's monotonic clock.
  // `spans` (may be null) are told of all bookings from then on, as those of `self`.
  void restart(std::int64_t start_ns, SpanRecorder* spans, Rank self) { *this = WallAccount(start_ns, spans, self); }

  Time now() const { return Time{Duration{monotonic_ns() - start_ns_}}; }
  std::int64_t to_monotonic_ns(Time time) const { return later(time, Duration{start_ns_}).time_since_epoch().count(); }

  // From the last booking until now, or until `end`, which may lie in the past (then clipped).
  void book(Activity activity, const SpanLabel& label = {}) { book_until(activity, now(), label); }
  void book_until(Activity activity, Time end, const SpanLabel& label) {
    end = std::max(end, booked_);
    if (spans_) spans_->add(self_, activity, end, label.what, label.step, label.micro_batch);
    account_[activity] += end - booked_;
    booked_ = end;
  }

  // Makes the account end at T: what is missing was spent waiting; what lies beyond (a farewell that
  // nobody needed any more) is taken back: as the spans have it, or else last things first. Returns what was
  // taken from compute, of micro-batches where spans tell them apart.
  Duration close(Time end) {
    book_until(Activity::wait, end, {"end of the run"});
    if (const auto removed = spans_ ? spans_->remove_beyond(self_, end) : std::nullopt) {
      for (std::size_t i = 0; i < activities; ++i) account_.time[i] -= removed->account.time[i];
      booked_ = end;
      return removed->micro_batches;
    }
    const Duration computed = account_[Activity::compute];
    Duration beyond = booked_ - end;
    for (const Activity activity :
         {Activity::wait, Activity::communicate, Activity::compute, Activity::discarded, Activity::down}) {
      const Duration taken = std::min(beyond, account_[activity]);
      account_[activity] -= taken;
      beyond -= taken;
    }
    booked_ = end;
    return computed - account_[Activity::compute];
  }

  const Account& account() const { return account_; }
  Time booked() const { return booked_; }  // everything before it is booked

  WallAccount() = default;

 private:
  WallAccount(std::int64_t start_ns, SpanRecorder* spans, Rank self)
      : start_ns_(start_ns), spans_(spans), self_(self) {}

  std::int64_t start_ns_ = 0;
  SpanRecorder* spans_ = nullptr;
  Rank self_{};
  Time booked_ = start_time;
  Account account_;
};

}  // namespace syncopate
