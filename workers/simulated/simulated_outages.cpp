// Micro-batches of the simulated cluster that meet outages; those that do not never come here.
#include <algorithm>
#include <utility>

#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {

bool SimulatedCluster::may_lose_state(Rank rank) const {
  return !outages_.empty() && !is_server(rank) && outages_[index(rank)].may_lose_state;
}

bool SimulatedCluster::has_lost_state(Rank rank) {
  return !outages_.empty() && std::exchange(outages_[index(rank)].has_lost_state, false);
}

// Nothing where no outage begins before the micro-batch would end.
std::optional<Passage> SimulatedCluster::meet_outages(Rank rank, const MicroBatch& slot, const Deadline& deadline) {
  Participant& participant = self(rank);
  WorkerOutages& outages = outages_[index(rank)].outages;
  const Outage& next = outages.next(participant.book.now());
  if (next.begin == never) return std::nullopt;
  const Duration duration = draw(participant, slot);
  const bool never_ends = duration >= longest_duration && deadline.at == never;
  if (never_ends || next.begin >= later(participant.book.now(), duration)) return std::nullopt;
  const Passage planned = pass(&outages, participant.book.now(), duration, deadline);
  return deadline.at_message ? wait_for_message(rank, planned) : planned;
}

// Books the whole passage at once: what was worked on is known to be kept or lost only at its end.
std::optional<Gradient> SimulatedCluster::pass_through(Rank rank, const ModelStatePtr& at, const MicroBatch& slot,
                                                       const MicroBatch& samples, const Passage& passage) {
  Participant& participant = self(rank);
  OutageProgress& progress = outages_[index(rank)];
  check_clock(rank, passage.end);
  Book& book = participant.book;
  const Activity work = passage.kept ? Activity::compute : Activity::discarded;
  for (const auto& [end, down] : passage.pieces) {
    if (down) progress.add(book.now(), end, book.met_at());
    book.pass(down ? Activity::down : work, end, down ? SpanLabel{outage_name} : label_of(slot));
  }
  progress.has_lost_state = passage.lost_state;
  poll_interrupt();
  if (!passage.kept) return std::nullopt;
  ++book.tally.computed;
  record_duration(rank, slot, passage.worked);
  return Gradient(at, samples, passage.worked);
}

// What comes of the planned passage if a message may end it.
Passage SimulatedCluster::wait_for_message(Rank rank, const Passage& planned) {
  Participant& participant = self(rank);
  Passage passage{.end = participant.book.now()};
  for (const auto& [end, down] : planned.pieces) {
    const Time begin = passage.end;
    if (down || participant.inbox.empty()) wait_until(rank, end, !down);
    const bool is_cancelled = !down && !participant.inbox.empty();
    // A message that was there before is older than the worker's clock.
    passage.end = is_cancelled ? std::clamp(global_, begin, end) : end;
    if (passage.end > begin) passage.pieces.push_back({passage.end, down});
    if (!down) passage.worked += passage.end - begin;
    if (!is_cancelled) continue;
    ++participant.book.tally.cancelled;
    return passage;
  }
  passage.kept = planned.kept;
  passage.lost_state = planned.lost_state;
  return passage;
}

void SimulatedCluster::wait_until(Rank rank, Time until, bool interruptible) {
  Participant& participant = self(rank);
  participant.computing = true;
  participant.interruptible = interruptible;
  suspend_until(rank, until, {interruptible ? "a micro-batch" : "an outage", SourceLine::current()});
  participant.computing = participant.interruptible = false;
}

}  // namespace syncopate
