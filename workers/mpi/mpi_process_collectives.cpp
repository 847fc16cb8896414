// Collectives of an MPI rank: a polite wait for the last arrival, then one blocking operation.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "workers/mpi/mpi_process.hpp"
#include "workers/mpi/mpi_reduction.hpp"
#include "workers/network/network.hpp"

namespace syncopate {

using News = MpiPost::News;

void MpiCluster::Process::stamp(Arrival& own, const Place& place) {
  if (!is_worker()) throw RunFailure("a server cannot take part in a collective");
  if (own.operation != Collective::end || !is_lost_) clock_.book(Activity::compute);
  own.time_ns = clock_.booked().time_since_epoch().count();
  own.message_bytes = sent_bytes_.value();
  own.partial_kept = partial_kept_;
  set_place(own, place);
}

std::vector<Arrival> MpiCluster::Process::meet(Arrival own, const Contribution& contribution, const Place& place) {
  stamp(own, place);
  own.kept = contribution.kept;
  own.planned = contribution.planned;
  own.step = contribution.step.value();
  own.period = contribution.period.value();
  ++meetings_;
  const bool at_the_end = own.operation == Collective::end;
  begin_wait();
  auto arrivals = gather_arrivals(communicators_.workers(), own, communicators_.cores_suffice(), [&] {
    progress();
    for (int worker = 0; worker < options_.workers && !at_the_end; ++worker)
      // Not if it was here and has gone on since.
      if (post_->announced(News::lost, Rank{worker}).value_or(meetings_) < meetings_)
        throw RunFailure(explain_absence(own, Rank{worker}, "is in a micro-batch that never ends"));
    look_for_standstill({.place = at_the_end ? nullptr : &place, .what = WaitReport::For::meeting});
  });
  if (const std::string mismatch = explain_mismatch(arrivals); !mismatch.empty()) throw RunFailure(mismatch);
  clock_.book_until(Activity::wait, std::min(last_arrival(arrivals), now()),
                    {at_the_end ? "end of the run" : place.operation});
  return arrivals;
}

// By letters: only the members take part, and who has left is known from the same sender's news.
std::vector<Arrival> MpiCluster::Process::meet_group(Arrival own, int first, int count, const Place& place) {
  stamp(own, place);
  std::vector<Arrival> arrivals(static_cast<std::size_t>(count), own);
  std::vector<int> awaited;
  for (int member = first; member < first + count; ++member) {
    if (member == self_.value) continue;
    post_->send(MpiPost::Kind::arrival, Rank{member}, bytes_of(own));
    awaited.push_back(member);
  }
  wait({.place = &place}, [&] {
    std::erase_if(awaited, [&](int member) {
      const auto letter = post_->take(MpiPost::Kind::arrival, Rank{member});
      if (letter) {
        arrivals[static_cast<std::size_t>(member - first)] = read_bytes<Arrival>(letter->contents);
      } else if (!post_->is_arriving(MpiPost::Kind::arrival, Rank{member})) {
        if (post_->has_announced(News::ended, Rank{member}))
          throw RunFailure(explain_absence(own, Rank{member}, "has left"));
        if (post_->has_announced(News::lost, Rank{member}))
          throw RunFailure(explain_absence(own, Rank{member}, "is in a micro-batch that never ends"));
      }
      return letter.has_value();
    });
    return awaited.empty();
  });
  if (const std::string mismatch = explain_mismatch(arrivals, first); !mismatch.empty()) throw RunFailure(mismatch);
  clock_.book_until(Activity::wait, std::min(last_arrival(arrivals), now()), {place.operation});
  return arrivals;
}

Agreement MpiCluster::Process::conclude(const std::vector<Arrival>& arrivals, Bytes moved, bool is_round,
                                        const Place& place) {
  clock_.book(Activity::communicate, {place.operation});
  met_at_ = clock_.booked();
  if (self_.value == 0) ++collectives_;
  collective_bytes_ += moved;
  Bytes bytes = collective_bytes_;
  std::int64_t kept = 0, planned = 0;
  Round round;
  for (const Arrival& arrival : arrivals) {
    bytes += Bytes{arrival.message_bytes};
    kept += arrival.kept;
    planned += arrival.planned;
    round.step = std::max(round.step, Step{arrival.step});
    round.period = std::max(round.period, Step{arrival.period});
  }
  kept_in_collectives_ += kept;
  const Arrival& own = arrivals[static_cast<std::size_t>(self_.value)];
  tally(self_).kept += own.kept;
  tally(self_).dropped += own.planned - own.kept;
  round.kept = kept;
  round.dropped = planned - kept;
  if ((is_round || kept + planned > 0) && self_.value == 0) report(round, bytes);
  return {.time = last_arrival(arrivals),
          .micro_batches = kept_in_collectives_ + arrivals.front().partial_kept,
          .bytes = bytes};
}

void MpiCluster::Process::report(Round round, Bytes bytes_so_far) {
  round.end = now();
  round.duration = round.end - std::exchange(last_round_end_, round.end);
  round.bytes = bytes_so_far - std::exchange(bytes_at_last_round_, bytes_so_far);
  if (options_.observer) options_.observer->on_round(round);
}

Agreement MpiCluster::Process::all_reduce_sum(Gradient& gradient, std::span<double> numbers,
                                              const Contribution& contribution, const Place& place) {
  const auto count = static_cast<Bytes::Rep>(numbers.size());
  const auto arrivals = meet({.operation = Collective::all_reduce_sum,
                              .wide = gradient.wide(),
                              .detail = count,
                              .micro_batches = gradient.micro_batches()},
                             contribution, place);
  std::int64_t micro_batches = 0;
  bool wide = false;
  for (const Arrival& arrival : arrivals) {
    micro_batches += arrival.micro_batches;
    wide |= arrival.wide != 0;
  }
  gradient = sum_over(communicators_.workers(), options_.training, gradient, micro_batches, wide);
  if (!numbers.empty()) sum_over(communicators_.workers(), numbers);
  const Bytes payload = options_.training.parameter_bytes() + Bytes{4 * count};
  return conclude(arrivals, all_reduce_bytes(workers(), payload), true, place);
}

SharedNumbers MpiCluster::Process::all_gather(std::span<const double> numbers, const Place& place) {
  const int count = mpi_count(numbers.size());
  const auto arrivals = meet({.operation = Collective::all_gather, .detail = count}, {}, place);
  auto all = std::make_shared<std::vector<double>>(numbers.size() * arrivals.size());
  MPI_Allgather(numbers.data(), count, MPI_DOUBLE, all->data(), count, MPI_DOUBLE, communicators_.workers());
  conclude(arrivals, all_gather_bytes(workers(), Bytes{static_cast<Bytes::Rep>(8 * all->size())}), false, place);
  return all;
}

Bytes MpiCluster::Process::averaged_bytes(const AveragePolicy& policy) const {
  return Bytes{static_cast<Bytes::Rep>(sizeof(float) * options_.training.averaged_size(policy))};
}

Agreement MpiCluster::Process::average(ModelStatePtr& state, const Averaging& averaging,
                                       const Contribution& contribution, const Place& place) {
  const AveragePolicy& policy = averaging.policy;
  const int detail = 100 * static_cast<int>(policy.moments[0]) + 10 * static_cast<int>(policy.moments[1]) +
                     static_cast<int>(policy.buffers);
  const Arrival own{.operation = Collective::average_model, .detail = detail, .weight = averaging.weight};
  if (averaging.group_size > 0) return average_in_group(state, averaging, own, place);
  const auto arrivals = meet(own, contribution, place);
  state = mean_over(communicators_.workers(), options_.training, state, policy, share_of(own, arrivals));
  return conclude(arrivals, all_reduce_bytes(workers(), averaged_bytes(policy)), true, place);
}

// The first member counts it for the group, as its own bytes: the other workers do not know of it.
Agreement MpiCluster::Process::average_in_group(ModelStatePtr& state, const Averaging& averaging, Arrival own,
                                                const Place& place) {
  const int first = self_.value / averaging.group_size * averaging.group_size;
  const int count = std::min(averaging.group_size, workers() - first);
  const auto arrivals = meet_group(own, first, count, place);
  state = mean_over(communicators_.group(first, count), options_.training, state, averaging.policy,
                    share_of(own, arrivals));
  clock_.book(Activity::communicate, {place.operation});
  met_at_ = clock_.booked();
  if (self_.value == first) {
    ++collectives_;
    sent_bytes_ += all_reduce_bytes(count, averaged_bytes(averaging.policy));
  }
  return {.time = last_arrival(arrivals)};
}

Agreement MpiCluster::Process::broadcast(ModelStatePtr& state, Rank root, const Place& place) {
  if (root.value < 0 || root.value >= workers())
    throw RunFailure(fmt::format("a broadcast from rank {}, but the workers are 0 to {}", root.value, workers() - 1));
  const auto arrivals = meet({.operation = Collective::broadcast_model, .detail = root.value}, {}, place);
  state = copy_from(communicators_.workers(), options_.training, state, root.value);
  return conclude(arrivals, Bytes{(workers() - 1) * options_.training.parameter_bytes().value()}, false, place);
}

Agreement MpiCluster::Process::barrier(const Place& place, const Contribution& contribution) {
  return conclude(meet({.operation = Collective::barrier}, contribution, place), Bytes{0}, false, place);
}

}  // namespace syncopate
