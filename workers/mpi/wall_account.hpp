// Books a participant's wall time without gaps: what lies between two bookings belongs to the second.
#pragma once

#include <algorithm>

#include "workers/cluster.hpp"
#include "workers/mpi/mpi_wait.hpp"

namespace syncopate {

class WallAccount {
 public:
  // Time counts from `start_ns` of the machine's monotonic clock.
  void restart(std::int64_t start_ns) { *this = WallAccount(start_ns); }

  Time now() const { return Time{Duration{monotonic_ns() - start_ns_}}; }
  std::int64_t to_monotonic_ns(Time time) const { return later(time, Duration{start_ns_}).time_since_epoch().count(); }

  // From the last booking until now, or until `end`, which may lie in the past (then clipped).
  void book(Activity activity) { book_until(activity, now()); }
  void book_until(Activity activity, Time end) {
    end = std::max(end, booked_);
    account_[activity] += end - booked_;
    booked_ = end;
  }

  // Makes the account end at T: what is missing was spent waiting; what lies beyond (a farewell that
  // nobody needed any more) is taken back, last things first. Returns what was taken from compute.
  Duration close(Time end) {
    book_until(Activity::wait, end);
    const Duration computed = account_[Activity::compute];
    Duration beyond = booked_ - end;
    for (const Activity activity : {Activity::wait, Activity::communicate, Activity::compute, Activity::discarded}) {
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
  explicit WallAccount(std::int64_t start_ns) : start_ns_(start_ns) {}

  std::int64_t start_ns_ = 0;
  Time booked_ = start_time;
  Account account_;
};

}  // namespace syncopate
