// Collectives of the simulated cluster: workers gather; at the last arrival plus the network's cost
// the result is formed and all go on. A worker's part is done while it runs, never in a loop over all
// workers: with thousands of them, fetching each one's memory once per step is the cost of a step.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {

// Waits for the others; afterwards the worker's clock stands at the collective's end.
inline Agreement SimulatedCluster::meet(Rank rank, const Place& place) {
  if (gathering_.arrived == options_.workers) schedule_collective_end();
  Participant& participant = self(rank);
  suspend(participant, place);
  participant.account[Activity::wait] += meeting_.last_arrival - participant.now;
  participant.account[Activity::communicate] += meeting_.end - meeting_.last_arrival;
  participant.now = participant.met_at = meeting_.end;
  return meeting_.agreement;
}

Agreement SimulatedCluster::all_reduce_sum(Rank rank, Gradient& gradient, const Contribution& contribution,
                                           Place place) {
  arrive(rank, Collective::all_reduce, contribution, place).sum += std::move(gradient);
  const Agreement agreement = meet(rank, place);
  gradient = meeting_.sum;
  return agreement;
}

Agreement SimulatedCluster::average(Rank rank, ModelStatePtr& state, const AveragePolicy& policy,
                                    const Contribution& contribution, Place place) {
  Gathering& gathering = arrive(rank, Collective::average, contribution, place);
  if (gathering.arrived > 1 && gathering.policy != policy)
    throw RunFailure(fmt::format("{} averages by another policy than the others", name(rank)));
  gathering.policy = policy;
  gathering.states[index(rank)] = std::move(state);
  const Agreement agreement = meet(rank, place);
  state = std::move(meeting_.states[index(rank)]);
  return agreement;
}

Agreement SimulatedCluster::broadcast(Rank rank, ModelStatePtr& state, Rank root, Place place) {
  if (root.value < 0 || root.value >= options_.workers)
    throw RunFailure(fmt::format("{} broadcasts from rank {}, but the workers are 0 to {}", name(rank), root.value,
                                 options_.workers - 1));
  Gathering& gathering = arrive(rank, Collective::broadcast, {}, place);
  if (gathering.arrived > 1 && gathering.root != root)
    throw RunFailure(fmt::format("{} broadcasts from rank {} while others broadcast from rank {}", name(rank),
                                 root.value, gathering.root.value));
  gathering.root = root;
  gathering.states[index(rank)] = state;
  const Agreement agreement = meet(rank, place);
  state = options_.training.adopt(state, meeting_.states[index(root)]);
  return agreement;
}

Agreement SimulatedCluster::barrier(Rank rank, Place place) {
  arrive(rank, Collective::barrier, {}, place);
  return meet(rank, place);
}

SimulatedCluster::Gathering& SimulatedCluster::arrive(Rank rank, Collective operation, const Contribution& part,
                                                      const Place& place) {
  Gathering& gathering = gathering_;
  Participant& participant = self(rank);
  if (options_.has_server && rank == server()) throw RunFailure("the server cannot take part in a collective");
  if (gathering.arrived > 0 && operation != gathering.operation)
    throw RunFailure(
        fmt::format("{} calls {} while others gather for {}", name(rank), place.operation, gathering.place.operation));
  gathering.operation = operation;
  gathering.place = place;
  gathering.last_arrival = std::max(gathering.last_arrival, participant.now);
  ++gathering.arrived;
  if (operation == Collective::average || operation == Collective::broadcast)
    gathering.states.resize(static_cast<std::size_t>(options_.workers));
  participant.kept += part.kept;
  participant.dropped += part.planned - part.kept;
  gathering.round.kept += part.kept;
  gathering.round.dropped += part.planned - part.kept;
  gathering.round.step = std::max(gathering.round.step, part.step);
  gathering.round.period = std::max(gathering.round.period, part.period);
  return gathering;
}

Bytes SimulatedCluster::payload() const {
  Training& training = options_.training;
  if (gathering_.operation == Collective::barrier) return Bytes{0};
  if (gathering_.operation == Collective::average && !training.time_only())
    return Bytes{static_cast<Bytes::Rep>(4 * training.averaged_size(gathering_.policy))};
  return training.parameter_bytes();
}

void SimulatedCluster::schedule_collective_end() {
  const Bytes bytes = payload();
  Duration cost = options_.network.all_reduce(options_.workers, bytes);
  if (gathering_.operation == Collective::broadcast) {
    // A binomial tree: as many messages in a row as it takes to double the informed up to N.
    const int depth = std::bit_width(static_cast<unsigned>(options_.workers - 1));
    cost = depth * options_.network.message(bytes);
    bytes_ += (options_.workers - 1) * bytes.value();
  } else {
    bytes_ += all_reduce_bytes(options_.workers, bytes);
  }
  schedule(later(gathering_.last_arrival, cost), Event::Kind::finish_collective, Rank{});
}

void SimulatedCluster::end_collective() {
  Gathering ended = std::exchange(gathering_, Gathering{});
  ++collectives_;
  kept_ += ended.round.kept;
  meeting_.last_arrival = ended.last_arrival;
  meeting_.end = global_;
  meeting_.agreement = {.time = global_, .micro_batches = kept_, .bytes = bytes_};
  meeting_.sum = options_.training.share(ended.sum);
  meeting_.states = ended.operation == Collective::average ? options_.training.average(ended.states, ended.policy)
                                                           : std::move(ended.states);
  if (ended.operation == Collective::all_reduce || ended.operation == Collective::average) {
    ended.round.end = global_;
    ended.round.duration = global_ - std::exchange(last_round_end_, global_);
    ended.round.bytes = bytes_ - std::exchange(last_round_bytes_, bytes_);
    if (options_.observer) options_.observer->on_round(ended.round);
  }
  ended = {};  // the old states, before anybody steps on from the new ones
  constexpr int ahead = 2;
  for (int i = 0; i < options_.workers; ++i) {
    if (i + ahead < options_.workers) self(Rank{i + ahead}).fiber->prefetch();
    resume(Rank{i});
  }
  meeting_.sum = {};
  meeting_.states.clear();
}

}  // namespace syncopate
