#include "workers/mpi/mpi_checkpoints.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace syncopate {

namespace {

constexpr int call_tag = 1;

}  // namespace

std::optional<std::int64_t> MpiCheckpoints::called_for() {
  const MPI_Comm ranks = state_.communicators.checkpoints();
  if (state_.self != Rank{0}) {
    int is_called = 0;
    MPI_Iprobe(0, call_tag, ranks, &is_called, MPI_STATUS_IGNORE);
    if (!is_called) return std::nullopt;
    MPI_Recv(&number_, 1, MPI_INT64_T, 0, call_tag, ranks, MPI_STATUS_IGNORE);
    return number_;
  }
  if (state_.ending == MpiRunState::Ending::closed) return std::nullopt;
  const auto number = store_->due();
  if (!number) return std::nullopt;
  number_ = *number;
  for (int rank = 1; rank < state_.participants(); ++rank)
    MPI_Isend(&number_, 1, MPI_INT64_T, rank, call_tag, ranks, &calls_.emplace_back(MPI_REQUEST_NULL));
  return number;
}

void MpiCheckpoints::stop(std::int64_t number) {
  const CheckpointStop stopped = stand_still();
  const std::int64_t begin_ns = monotonic_ns();
  wait_politely(state_.communicators.cores_suffice(), [&] {
    drive();
    return std::ranges::equal(state_.transport.received_from(), stopped.sent) &&
           state_.transport.has_nothing_half_way() && collectives_.have_ended(stopped.collectives);
  });
  gather<std::int64_t>({0}, MPI_INT64_T, true);  // what the others still lack may need this rank
  MPI_Waitall(static_cast<int>(calls_.size()), calls_.data(), MPI_STATUSES_IGNORE);
  calls_.clear();

  const CheckpointStore::Written written = store_->write(number, [&](ByteSink& out) { write_(out, stopped.at); });
  const std::vector<std::uint64_t> own = {written.digest ? 1U : 0U, written.digest.value_or(0),
                                          static_cast<std::uint64_t>(monotonic_ns() - begin_ns)};
  const std::vector<std::uint64_t> all = gather(own, MPI_UINT64_T, false);
  std::uint64_t longest_ns = 0;
  std::vector<std::optional<std::uint64_t>> digests;
  for (std::size_t part = 0; part < all.size(); part += own.size()) {
    digests.push_back(all[part] ? std::optional(all[part + 1]) : std::nullopt);
    longest_ns = std::max(longest_ns, all[part + 2]);
  }
  // All clocks by the same time: from when the last rank had stopped until the last one had written.
  state_.clock.stood_still(static_cast<std::int64_t>(longest_ns));
  if (store_->written(number, digests)) throw LeftAtCheckpoint();
}

MpiCheckpoints::CheckpointStop MpiCheckpoints::stand_still() {
  std::vector<std::int64_t> own = {
      state_.now().time_since_epoch().count(),
      state_.is_worker() ? collectives_.started() : std::numeric_limits<std::int64_t>::max()};
  const auto head = static_cast<std::ptrdiff_t>(own.size());
  own.insert(own.end(), state_.transport.sent_to().begin(), state_.transport.sent_to().end());
  const std::vector<std::int64_t> all = gather(own, MPI_INT64_T, true);
  CheckpointStop stopped{.collectives = own[1]};
  for (auto part = all.begin(); part != all.end(); part += std::ssize(own)) {
    stopped.at = std::max(stopped.at, Time{Duration{part[0]}});
    stopped.collectives = std::min(stopped.collectives, part[1]);
    stopped.sent.push_back(part[head + state_.self.value]);
  }
  return stopped;
}

template <typename Number>
std::vector<Number> MpiCheckpoints::gather(const std::vector<Number>& own, MPI_Datatype type, bool drives) {
  std::vector<Number> all(own.size() * static_cast<std::size_t>(state_.participants()));
  const int count = static_cast<int>(own.size());
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(own.data(), count, type, all.data(), count, type, state_.communicators.checkpoints(), &request);
  wait_politely(state_.communicators.cores_suffice(), [&] {
    if (drives) drive();
    return is_done(request);
  });
  return all;
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
