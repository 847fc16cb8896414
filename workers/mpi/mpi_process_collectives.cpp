// Collectives of an MPI rank: a polite wait for the last arrival, then one blocking operation.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "workers/delays/network.hpp"
#include "workers/mpi/mpi_process.hpp"
#include "workers/mpi/mpi_reduction.hpp"

namespace syncopate {

std::vector<Arrival> MpiCluster::Process::meet(Arrival own, const Contribution& contribution, const Place& place) {
  if (!is_worker()) throw RunFailure("the server cannot take part in a collective");
  clock_.book(Activity::compute);
  own.time_ns = clock_.booked().time_since_epoch().count();
  own.kept = contribution.kept;
  own.planned = contribution.planned;
  own.step = contribution.step.value();
  own.period = contribution.period.value();
  own.message_bytes = sent_bytes_.value();
  set_place(own, place);
  auto arrivals =
      gather_arrivals(communicators_.workers(), own, communicators_.cores_suffice(), [&] { mailbox_->progress(); });
  if (const std::string mismatch = explain_mismatch(arrivals); !mismatch.empty()) throw RunFailure(mismatch);
  clock_.book_until(Activity::wait, std::min(last_arrival(arrivals), now()));
  return arrivals;
}

Agreement MpiCluster::Process::conclude(const std::vector<Arrival>& arrivals, Bytes moved, bool is_round) {
  clock_.book(Activity::communicate);
  ++collectives_;
  collective_bytes_ += moved;
  Bytes bytes = collective_bytes_;
  std::int64_t kept = 0, planned = 0;
  Round round{.end = clock_.booked(), .duration = clock_.booked() - last_round_end_};
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
  const Agreement agreement{.time = last_arrival(arrivals), .micro_batches = kept_in_collectives_, .bytes = bytes};
  if (is_round && self_.value == 0 && options_.observer) {
    round.kept = kept;
    round.dropped = planned - kept;
    round.bytes = bytes - bytes_at_last_round_;
    options_.observer->on_round(round);
    last_round_end_ = clock_.booked();
    bytes_at_last_round_ = bytes;
  }
  return agreement;
}

Agreement MpiCluster::Process::all_reduce_sum(Gradient& gradient, const Contribution& contribution,
                                              const Place& place) {
  const auto arrivals =
      meet({.operation = Collective::all_reduce_sum, .micro_batches = gradient.micro_batches()}, contribution, place);
  std::int64_t micro_batches = 0;
  for (const Arrival& arrival : arrivals) micro_batches += arrival.micro_batches;
  gradient = sum_over(communicators_.workers(), options_.training, gradient, micro_batches);
  return conclude(arrivals, all_reduce_bytes(workers(), options_.training.parameter_bytes()), true);
}

Agreement MpiCluster::Process::average(ModelStatePtr& state, const AveragePolicy& policy,
                                       const Contribution& contribution, const Place& place) {
  const int detail = 10 * static_cast<int>(policy.moments) + static_cast<int>(policy.buffers);
  const auto arrivals = meet({.operation = Collective::average_model, .detail = detail}, contribution, place);
  state = mean_over(communicators_.workers(), options_.training, state, policy);
  const Bytes payload = options_.training.time_only()
                            ? options_.training.parameter_bytes()
                            : Bytes{static_cast<Bytes::Rep>(4 * options_.training.averaged_size(policy))};
  return conclude(arrivals, all_reduce_bytes(workers(), payload), true);
}

Agreement MpiCluster::Process::broadcast(ModelStatePtr& state, Rank root, const Place& place) {
  if (root.value < 0 || root.value >= workers())
    throw RunFailure(fmt::format("a broadcast from rank {}, but the workers are 0 to {}", root.value, workers() - 1));
  const auto arrivals = meet({.operation = Collective::broadcast_model, .detail = root.value}, {}, place);
  state = copy_from(communicators_.workers(), options_.training, state, root.value);
  return conclude(arrivals, Bytes{(workers() - 1) * options_.training.parameter_bytes().value()}, false);
}

Agreement MpiCluster::Process::barrier(const Place& place) {
  return conclude(meet({.operation = Collective::barrier}, {}, place), Bytes{0}, false);
}

}  // namespace syncopate
