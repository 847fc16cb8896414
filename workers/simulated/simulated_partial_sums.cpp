// Partial all-reduces of the simulated cluster. Workers arrive in the order of virtual time; once the
// activation is fulfilled the round takes place with what is there, and those who come later, or are still
// computing, only get its result.
#include <algorithm>
#include <utility>

#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {
namespace {

// Whether something came too late and waits for a round: nothing that was computed, perhaps, of what was planned.
bool waits(const Gradient& late, const Contribution& part) { return late.micro_batches() > 0 || part.planned > 0; }

}  // namespace

std::vector<PartialSum> SimulatedCluster::partial_all_reduce(Rank rank, Gradient gradient, const Activation& activation,
                                                             LateGradient late, const Contribution& part, Place place) {
  has_partial_rounds_ = true;
  if (!pauses_.empty()) end_trailing_work(rank);
  Participant& participant = self(rank);
  // This worker may have run ahead of everybody's time.
  schedule(participant.book.now(), Event::Kind::arrive_partial, rank);
  suspend(participant, place);

  const bool in_time = participant.next_round == partial_.number && !partial_.under_way;
  if (in_time) {
    partial_.activation = activation;
    partial_.arrived.push_back(rank);
    if (waits(participant.late, participant.late_part))
      contribute(rank, std::exchange(participant.late, {}), std::exchange(participant.late_part, {}));
    contribute(rank, std::move(gradient), part);
  } else if (late == LateGradient::drop) {
    participant.book.lose(gradient.compute_time());
    participant.book.contribute({.planned = part.planned}, partial_.row);
  } else {
    if (!waits(participant.late, participant.late_part)) partial_.accumulated.push_back(rank);
    participant.late += gradient;
    participant.late_part.kept += part.kept;
    participant.late_part.planned += part.planned;
  }

  if (participant.next_round == partial_.number) {
    partial_.waiting.push_back(rank);
    if (in_time) start_partial_round_if_due();
    suspend(participant, place);
    participant.book.pass(Activity::wait, partial_.taken_place, {place.operation});
    participant.book.pass(Activity::communicate, global_, {place.operation});
    participant.book.meet();
  }
  return results_for(participant);
}

void SimulatedCluster::contribute(Rank rank, Gradient gradient, const Contribution& part) {
  self(rank).book.contribute(part, partial_.row);
  partial_.sum += std::move(gradient);
}

void SimulatedCluster::start_partial_round_if_due() {
  PartialRound& round = partial_;
  if (round.under_way || round.arrived.empty()) return;
  int quorum = std::min(round.activation.quorum, options_.workers - leaves_);
  if (round.activation.rank) {
    const Rank rank = *round.activation.rank;
    const bool is_there = std::find(round.arrived.begin(), round.arrived.end(), rank) != round.arrived.end();
    quorum = is_there || self(rank).left ? 1 : options_.workers + 1;
  }
  if (static_cast<int>(round.arrived.size()) < quorum) return;

  round.under_way = true;
  round.taken_place = global_;
  round.contributors = static_cast<int>(round.arrived.size());
  for (const Rank rank : std::exchange(round.accumulated, {})) {
    Participant& participant = self(rank);
    if (!waits(participant.late, participant.late_part)) continue;  // brought in by its own arrival
    contribute(rank, std::exchange(participant.late, {}), std::exchange(participant.late_part, {}));
    ++round.contributors;
  }
  const CollectiveCall call{
      .members = options_.workers, .payload = options_.training.parameter_bytes(), .number = collectives_begun_++};
  begin_collective(global_, call, Event::Kind::finish_partial, nullptr);
}

void SimulatedCluster::end_partial_round() {
  PartialRound& round = partial_;
  ++collectives_;
  kept_ += round.row.kept;
  Gradient sum = options_.training.share(std::exchange(round.sum, {}));
  sum.mark_reduced();
  round.results.push_back({.sum = std::move(sum),
                           .contributors = round.contributors,
                           .agreement = {.time = global_, .micro_batches = kept_, .bytes = bytes_}});
  ++round.number;
  round.under_way = false;
  round.arrived.clear();
  StepRow row = std::exchange(round.row, {});
  row.step = round.number;
  row.period = 1;
  rows_.close(row, global_, bytes_);
  for (const Rank rank : std::exchange(round.waiting, {})) resume(rank);

  // Results that everybody has got, or will never ask for.
  Step needed = round.number;
  for (int i = 0; i < options_.workers; ++i) {
    const Participant& participant = self(Rank{i});
    if (!participant.ended && !participant.lost) needed = std::min(needed, participant.next_round);
  }
  while (round.number - Step{static_cast<Step::Rep>(round.results.size())} < needed) round.results.pop_front();
}

// All results since the last one that this worker has got, oldest first.
std::vector<PartialSum> SimulatedCluster::results_for(Participant& participant) {
  const auto count = static_cast<std::ptrdiff_t>((partial_.number - participant.next_round).value());
  participant.next_round = partial_.number;
  return {partial_.results.end() - count, partial_.results.end()};
}

}  // namespace syncopate
