// Collectives of the simulated cluster: workers gather; at the last arrival plus the network's cost
// the result is formed and all go on.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "workers/simulated_cluster.hpp"

namespace syncopate {

Agreement SimulatedCluster::all_reduce_sum(Rank rank, Gradient& gradient, const Contribution& contribution,
                                           Place place) {
  self(rank).gradient = &gradient;
  self(rank).contribution = contribution;
  return meet(rank, Collective::all_reduce, place);
}

Agreement SimulatedCluster::average(Rank rank, ModelStatePtr& state, const AveragePolicy& policy,
                                    const Contribution& contribution, Place place) {
  self(rank).state = &state;
  self(rank).policy = policy;
  self(rank).contribution = contribution;
  return meet(rank, Collective::average, place);
}

Agreement SimulatedCluster::broadcast(Rank rank, ModelStatePtr& state, Rank root, Place place) {
  if (root.value < 0 || root.value >= options_.workers)
    throw RunFailure(fmt::format("{} broadcasts from rank {}, but the workers are 0 to {}", name(rank), root.value,
                                 options_.workers - 1));
  self(rank).state = &state;
  self(rank).root = root;
  self(rank).contribution = {};
  return meet(rank, Collective::broadcast, place);
}

Agreement SimulatedCluster::barrier(Rank rank, Place place) {
  self(rank).contribution = {};
  return meet(rank, Collective::barrier, place);
}

Agreement SimulatedCluster::meet(Rank rank, Collective operation, Place place) {
  if (options_.has_server && rank == server()) throw RunFailure("the server cannot take part in a collective");
  if (arrived_ > 0 && operation != gathering_)
    throw RunFailure(fmt::format("{} calls {} while others gather for {}", name(rank), place.operation,
                                 gathering_place_.operation));
  gathering_ = operation;
  gathering_place_ = place;
  last_arrival_ = arrived_ == 0 ? self(rank).now : std::max(last_arrival_, self(rank).now);
  if (++arrived_ == options_.workers) schedule_collective_end();
  suspend(rank, place);
  return agreement_;
}

Bytes SimulatedCluster::payload(Collective operation) const {
  const Participant& first = participants_.front();
  Training& training = options_.training;
  switch (operation) {
    case Collective::all_reduce: return training.parameter_bytes();
    case Collective::average:
      return training.time_only() ? training.parameter_bytes()
                                  : Bytes{static_cast<Bytes::Rep>(4 * training.averaged_size(first.policy))};
    case Collective::broadcast: return training.parameter_bytes();
    default: return Bytes{0};
  }
}

void SimulatedCluster::schedule_collective_end() {
  const Bytes bytes = payload(gathering_);
  Duration cost = options_.network.all_reduce(options_.workers, bytes);
  if (gathering_ == Collective::broadcast) {
    // A binomial tree: as many messages in a row as it takes to double the informed up to N.
    const int depth = std::bit_width(static_cast<unsigned>(options_.workers - 1));
    cost = depth * options_.network.message(bytes);
    bytes_ += (options_.workers - 1) * bytes.value();
  } else {
    bytes_ += all_reduce_bytes(options_.workers, bytes);
  }
  schedule(later(last_arrival_, cost), Event::Kind::finish_collective, Rank{});
}

void SimulatedCluster::end_collective() {
  const auto workers = static_cast<std::size_t>(options_.workers);
  Round round{.end = global_, .duration = global_ - last_round_end_};
  for (std::size_t i = 0; i < workers; ++i) {
    Participant& participant = participants_[i];
    const Contribution& part = participant.contribution;
    participant.account[Activity::wait] += last_arrival_ - participant.now;
    participant.account[Activity::communicate] += global_ - last_arrival_;
    participant.now = participant.met_at = global_;
    participant.kept += part.kept;
    participant.dropped += part.planned - part.kept;
    round.kept += part.kept;
    round.dropped += part.planned - part.kept;
    round.step = std::max(round.step, part.step);
    round.period = std::max(round.period, part.period);
  }
  ++collectives_;
  kept_ += round.kept;
  agreement_ = {.time = global_, .micro_batches = kept_, .bytes = bytes_};
  combine();
  const bool is_round = gathering_ == Collective::all_reduce || gathering_ == Collective::average;
  if (is_round) {
    round.bytes = bytes_ - last_round_bytes_;
    last_round_bytes_ = bytes_;
    last_round_end_ = global_;
    if (options_.observer) options_.observer->on_round(round);
  }
  // All flags are reset before anybody goes on: the first to run may already enter the next collective.
  arrived_ = 0;
  gathering_ = Collective::none;
  for (std::size_t i = 0; i < workers; ++i) resume(Rank{static_cast<int>(i)});
}

void SimulatedCluster::combine() {
  const auto workers = static_cast<std::size_t>(options_.workers);
  if (gathering_ == Collective::all_reduce) {
    Gradient sum;
    for (std::size_t i = 0; i < workers; ++i) sum += std::move(*participants_[i].gradient);
    sum = options_.training.share(sum);
    for (std::size_t i = 0; i < workers; ++i) *participants_[i].gradient = sum;
  } else if (gathering_ == Collective::average) {
    std::vector<ModelStatePtr> states;
    for (std::size_t i = 0; i < workers; ++i) states.push_back(std::move(*participants_[i].state));
    states = options_.training.average(states, participants_.front().policy);
    for (std::size_t i = 0; i < workers; ++i) *participants_[i].state = std::move(states[i]);
  } else if (gathering_ == Collective::broadcast) {
    const ModelStatePtr root = *participants_[index(participants_.front().root)].state;
    for (std::size_t i = 0; i < workers; ++i)
      *participants_[i].state = options_.training.adopt(*participants_[i].state, root);
  }
}

}  // namespace syncopate
