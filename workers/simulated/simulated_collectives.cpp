// Collectives of the simulated cluster: workers gather; at the last arrival plus the network's cost
// the result is formed and all go on. A worker's part is done while it runs, never in a loop over all
// workers: with thousands of them, fetching each one's memory once per step is the cost of a step.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "workers/cluster/deadlock.hpp"
#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {

// Waits for the others; afterwards the worker's clock stands at the collective's end.
inline Agreement SimulatedCluster::meet(Rank rank, const Place& place) {
  if (gathering_.arrived == options_.workers) schedule_collective_end();
  Participant& participant = self(rank);
  suspend(participant, place);
  record(rank, Activity::wait, meeting_.last_arrival, place.operation);
  record(rank, Activity::communicate, meeting_.end, place.operation);
  participant.account[Activity::wait] += meeting_.last_arrival - participant.now;
  participant.account[Activity::communicate] += meeting_.end - meeting_.last_arrival;
  participant.now = participant.met_at = meeting_.end;
  if (!pauses_.empty()) end_pause(rank);
  return meeting_.agreement;
}

Agreement SimulatedCluster::all_reduce_sum(Rank rank, Gradient& gradient, std::span<double> numbers,
                                           const Contribution& contribution, Place place) {
  Gathering& gathering = arrive(rank, Collective::all_reduce, contribution, place);
  gathering.sum += std::move(gradient);
  if (gathering.arrived == 1) gathering.numbers.assign(numbers.size(), 0.0);
  if (gathering.numbers.size() != numbers.size()) fail_for_counts(rank, numbers.size(), gathering.numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) gathering.numbers[i] += numbers[i];
  const Agreement agreement = meet(rank, place);
  gradient = meeting_.sum;
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = (*meeting_.numbers)[i];
  return agreement;
}

SharedNumbers SimulatedCluster::all_gather(Rank rank, std::span<const double> numbers, Place place) {
  Gathering& gathering = arrive(rank, Collective::all_gather, {}, place);
  const std::size_t count = numbers.size();
  if (gathering.arrived == 1) gathering.numbers.assign(count * static_cast<std::size_t>(options_.workers), 0.0);
  const std::size_t expected = gathering.numbers.size() / static_cast<std::size_t>(options_.workers);
  if (expected != count) fail_for_counts(rank, count, expected);
  std::copy(numbers.begin(), numbers.end(),
            gathering.numbers.begin() + static_cast<std::ptrdiff_t>(index(rank) * count));
  meet(rank, place);
  return meeting_.numbers;
}

void SimulatedCluster::fail_for_counts(Rank rank, std::size_t count, std::size_t expected) const {
  throw RunFailure(fmt::format("{} brings {} numbers, others {}", name(rank), count, expected));
}

Agreement SimulatedCluster::average(Rank rank, ModelStatePtr& state, const Averaging& averaging,
                                    const Contribution& contribution, Place place) {
  if (averaging.group_size > 0) {
    average_in_group(rank, state, averaging, place);
    return {.time = self(rank).now};
  }
  Gathering& gathering = arrive(rank, Collective::average, contribution, place);
  add_model(rank, gathering, index(rank), state, averaging);
  const Agreement agreement = meet(rank, place);
  state = std::move(meeting_.states[index(rank)]);
  return agreement;
}

void SimulatedCluster::add_model(Rank rank, Gathering& gathering, std::size_t place_in_group, ModelStatePtr& state,
                                 const Averaging& averaging) const {
  if (gathering.arrived > 1 && gathering.policy != averaging.policy)
    throw RunFailure(fmt::format("{} averages by another policy than the others", name(rank)));
  gathering.policy = averaging.policy;
  gathering.states[place_in_group] = std::move(state);
  gathering.weights[place_in_group] = averaging.weight;
}

// Weights that are all equal, 0 too, are none.
std::vector<ModelStatePtr> SimulatedCluster::mean_of(const Gathering& gathering) const {
  const auto& weights = gathering.weights;
  const bool equal = std::all_of(weights.begin(), weights.end(), [&](double w) { return w == weights.front(); });
  return options_.training.average(gathering.states, gathering.policy, equal ? std::span<const double>() : weights);
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

Agreement SimulatedCluster::barrier(Rank rank, Place place, const Contribution& contribution) {
  arrive(rank, Collective::barrier, contribution, place);
  return meet(rank, place);
}

SimulatedCluster::Gathering& SimulatedCluster::arrive(Rank rank, Collective operation, const Contribution& part,
                                                      const Place& place) {
  Gathering& gathering = gathering_;
  Participant& participant = self(rank);
  if (is_server(rank)) throw RunFailure("a server cannot take part in a collective");
  if (ended_workers_ > 0) fail_for_who_left(place);
  if (!pauses_.empty()) end_trailing_work(rank);
  if (gathering.arrived > 0 && operation != gathering.operation)
    throw RunFailure(
        fmt::format("{} calls {} while others gather for {}", name(rank), place.operation, gathering.place.operation));
  gathering.operation = operation;
  gathering.place = place;
  gathering.last_arrival = std::max(gathering.last_arrival, participant.now);
  ++gathering.arrived;
  if (operation == Collective::average || operation == Collective::broadcast) {
    gathering.states.resize(static_cast<std::size_t>(options_.workers));
    gathering.weights.resize(static_cast<std::size_t>(options_.workers));
  }
  participant.kept += part.kept;
  participant.dropped += part.planned - part.kept;
  gathering.round.kept += part.kept;
  gathering.round.dropped += part.planned - part.kept;
  gathering.round.step = std::max(gathering.round.step, part.step);
  gathering.round.period = std::max(gathering.round.period, part.period);
  return gathering;
}

void SimulatedCluster::fail_for_who_left(const Place& place) const {
  constexpr int most_named = 5;
  std::string who;
  int count = 0;
  for (int i = 0; i < options_.workers; ++i) {
    const Participant& participant = participants_[static_cast<std::size_t>(i)];
    if (!participant.ended || ++count > most_named) continue;
    who += fmt::format("{}{} left at {:.6f} s", who.empty() ? "" : ", ", name(Rank{i}), to_seconds(participant.now));
  }
  if (count > most_named) who += fmt::format(", and {} more", count - most_named);
  throw RunFailure(fmt::format("{}, but {} ({}:{}) needs every worker", who, place.operation,
                               short_path(place.at.file_name()), place.at.line()));
}

Bytes SimulatedCluster::average_payload(const AveragePolicy& policy) const {
  return Bytes{static_cast<Bytes::Rep>(4 * options_.training.averaged_size(policy))};
}

Bytes SimulatedCluster::payload() const {
  const auto numbers = static_cast<Bytes::Rep>(gathering_.numbers.size());
  switch (gathering_.operation) {
    case Collective::barrier:
      return Bytes{0};
    case Collective::average:
      return average_payload(gathering_.policy);
    case Collective::all_gather:
      return Bytes{8 * numbers};
    default:
      return options_.training.parameter_bytes() + Bytes{4 * numbers};
  }
}

void SimulatedCluster::schedule_collective_end() {
  Operation operation = Operation::all_reduce;
  if (gathering_.operation == Collective::broadcast) operation = Operation::broadcast;
  if (gathering_.operation == Collective::all_gather) operation = Operation::all_gather;
  const CollectiveCall call{
      .operation = operation, .members = options_.workers, .payload = payload(), .number = collectives_begun_++};
  begin_collective(gathering_.last_arrival, call, Event::Kind::finish_collective, Rank{});
}

void SimulatedCluster::end_collective() {
  Gathering ended = std::exchange(gathering_, Gathering{});
  ++collectives_;
  kept_ += ended.round.kept;
  meeting_.last_arrival = ended.last_arrival;
  meeting_.end = global_;
  meeting_.agreement = {.time = global_, .micro_batches = kept_, .bytes = bytes_};
  meeting_.sum = options_.training.share(ended.sum);
  meeting_.numbers =
      ended.numbers.empty() ? nullptr : std::make_shared<const std::vector<double>>(std::move(ended.numbers));
  meeting_.states = ended.operation == Collective::average ? mean_of(ended) : std::move(ended.states);
  const bool is_round = ended.operation == Collective::all_reduce || ended.operation == Collective::average;
  if (is_round || ended.round.kept + ended.round.dropped > 0) {
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
  meeting_.numbers = nullptr;
  meeting_.states.clear();
}

// Who has not gone on yet has not booked the collective.
SimulatedCluster::Progress SimulatedCluster::progress() const {
  Progress progress;
  progress.totals.end = meeting_.end;
  progress.totals.bytes = bytes_;
  progress.totals.collectives = collectives_;
  progress.last_round_end = last_round_end_;
  progress.last_round_bytes = last_round_bytes_;
  for (int i = 0; i < options_.workers; ++i) {
    const Participant& participant = participants_[static_cast<std::size_t>(i)];
    Account account = participant.account;
    if (participant.now < meeting_.end) {
      account[Activity::wait] += meeting_.last_arrival - participant.now;
      account[Activity::communicate] += meeting_.end - meeting_.last_arrival;
    }
    progress.totals.accounts.push_back(account);
    progress.totals.kept.push_back(participant.kept);
    progress.totals.dropped.push_back(participant.dropped);
  }
  return progress;
}

// Averages within a group of consecutive ranks; the last group may be smaller.
void SimulatedCluster::average_in_group(Rank rank, ModelStatePtr& state, const Averaging& averaging, Place place) {
  const int first = rank.value / averaging.group_size * averaging.group_size;
  const int members = std::min(averaging.group_size, options_.workers - first);
  Group& group = groups_[first];
  Gathering& gathering = group.gathering;
  if (gathering.arrived == 0) group.members = members;
  if (group.members != members) throw RunFailure(fmt::format("{} averages in another group than others", name(rank)));
  for (int member = first; member < first + members; ++member)
    if (self(Rank{member}).ended) fail_for_who_left(place);
  Participant& participant = self(rank);
  const auto place_in_group = static_cast<std::size_t>(rank.value - first);
  ++gathering.arrived;
  gathering.place = place;
  gathering.last_arrival = std::max(gathering.last_arrival, participant.now);
  gathering.states.resize(static_cast<std::size_t>(members));
  gathering.weights.resize(static_cast<std::size_t>(members));
  add_model(rank, gathering, place_in_group, state, averaging);
  if (gathering.arrived == members) {
    const CollectiveCall call{.members = members,
                              .payload = average_payload(averaging.policy),
                              .first = Rank{first},
                              .number = group.averages++};
    if (members > 1)
      begin_collective(gathering.last_arrival, call, Event::Kind::finish_group, Rank{first});
    else  // alone: nothing
      schedule(gathering.last_arrival, Event::Kind::finish_group, Rank{first});
  }
  suspend(participant, place);
  record(rank, Activity::wait, group.meeting.last_arrival, place.operation);
  record(rank, Activity::communicate, group.meeting.end, place.operation);
  participant.account[Activity::wait] += group.meeting.last_arrival - participant.now;
  participant.account[Activity::communicate] += group.meeting.end - group.meeting.last_arrival;
  participant.now = participant.met_at = group.meeting.end;
  state = std::move(group.meeting.states[place_in_group]);
}

void SimulatedCluster::end_group(Rank first) {
  Group& group = groups_[first.value];
  const Gathering ended = std::exchange(group.gathering, Gathering{});
  ++collectives_;
  group.meeting.last_arrival = ended.last_arrival;
  group.meeting.end = global_;
  group.meeting.states = mean_of(ended);
  for (int i = 0; i < group.members; ++i) resume(Rank{first.value + i});
}

}  // namespace syncopate
