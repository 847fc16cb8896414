#include "workers/cluster/book.hpp"

#include <algorithm>

namespace syncopate {

// With servers all counts as lost that they have not kept, with the pauses between.
Account Book::account_at(Time end, Duration down_beyond, DecidedBy who) const {
  Account account = account_;
  account.lose(who == DecidedBy::servers ? account[Activity::compute] - tally_.kept_time() : tally_.lost_time(who));
  account[Activity::down] -= down_beyond;
  const Duration beyond = now_ - unbooked_ - end;
  if (beyond <= Duration{}) {
    account[Activity::wait] -= beyond;
    return account;
  }
  const Duration worked = beyond - down_beyond;
  const Duration lost = std::min(worked, account[Activity::discarded]);
  account[Activity::discarded] -= lost;
  account[Activity::compute] -= worked - lost;
  return account;
}

// As the spans have it, or else last things first.
Duration Book::take_back(Time end) {
  if (const auto removed = spans_ ? spans_->remove_beyond(self_, end) : std::nullopt) {
    for (std::size_t i = 0; i < activities; ++i) account_.time[i] -= removed->account.time[i];
    return removed->micro_batches;
  }
  const Duration computed = account_[Activity::compute];
  Duration beyond = now_ - end;
  for (const Activity activity :
       {Activity::wait, Activity::communicate, Activity::compute, Activity::discarded, Activity::down}) {
    const Duration taken = std::min(beyond, account_[activity]);
    account_[activity] -= taken;
    beyond -= taken;
  }
  return computed - account_[Activity::compute];
}

}  // namespace syncopate
