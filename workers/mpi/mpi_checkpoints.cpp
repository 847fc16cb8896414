#include "workers/mpi/mpi_checkpoints.hpp"

#include <algorithm>

namespace syncopate {

// Once rank 0 has announced `closed`, it calls for no more checkpoints, because other ranks may leave then.
std::optional<std::int64_t> MpiCheckpoints::called_for() {
  constexpr auto call = MpiTransport::Announcement::checkpoint;
  if (state_.self != Rank{0}) {
    state_.transport.progress();
    return state_.transport.take_announced(call, Rank{0});
  }
  if (state_.ending == MpiRunState::Ending::closed) return std::nullopt;
  const auto number = store_->due();
  if (number) state_.transport.announce(call, *number);
  return number;
}

void MpiCheckpoints::stop(std::int64_t number) {
  const CheckpointStop stopped = stand_still();
  const std::int64_t begin_ns = monotonic_ns();
  wait_politely(state_.communicators.cores_suffice(), [&] {
    drive();
    return std::ranges::equal(state_.transport.received_from(), stopped.sent) &&
           state_.transport.has_nothing_half_way() && collectives_.have_ended();
  });
  gather<std::int64_t>({0}, true);  // ranks with collectives left to finish may need this rank

  const CheckpointStore::Written written = store_->write(number, [&](ByteSink& out) { write_(out, stopped.at); });
  const std::vector<std::uint64_t> own = {written.digest ? 1U : 0U, written.digest.value_or(0),
                                          static_cast<std::uint64_t>(monotonic_ns() - begin_ns)};
  const std::vector<std::uint64_t> all = gather(own, false);
  std::uint64_t longest_ns = 0;
  std::vector<std::optional<std::uint64_t>> digests;
  for (std::size_t part = 0; part < all.size(); part += own.size()) {
    digests.push_back(all[part] ? std::optional(all[part + 1]) : std::nullopt);
    longest_ns = std::max(longest_ns, all[part + 2]);
  }
  // All clocks skip the same time: the longest that any rank took from `begin_ns` until it had written its part.
  state_.clock.stood_still(static_cast<std::int64_t>(longest_ns));
  if (store_->written(number, digests)) throw LeftAtCheckpoint();
}

MpiCheckpoints::CheckpointStop MpiCheckpoints::stand_still() {
  std::vector<std::int64_t> own = {state_.now().time_since_epoch().count()};
  own.insert(own.end(), state_.transport.sent_to().begin(), state_.transport.sent_to().end());
  const std::vector<std::int64_t> all = gather(own, true);
  CheckpointStop stopped;
  for (auto part = all.begin(); part != all.end(); part += std::ssize(own)) {
    stopped.at = std::max(stopped.at, Time{Duration{part[0]}});
    stopped.sent.push_back(part[1 + state_.self.value]);
  }
  return stopped;
}

void MpiReplayLog::replay_rows() {
  while (!calls_.is_through() && next() == Call::row) {
    const auto row = next_answer<StepRow>(Call::row);
    if (observer_) observer_->on_row(row);
  }
}

bool MpiReplayLog::replays(Call call) {
  if (!replays_) return false;
  replay_rows();
  if (!calls_.is_through()) return true;
  if (call != position_.call) throw ReplayMismatch("it comes to another call than the one at which it had stopped");
  at_end();
  replays_ = false;
  has_just_resumed_ = true;
  return false;
}

}  // namespace syncopate
