#include "workers/simulated/micro_batches.hpp"

#include <algorithm>
#include <utility>

namespace syncopate {

MicroBatches::MicroBatches(Stage& stage, DurationsAhead& durations, PausesUnderWay& pauses)
    : stage_(stage),
      durations_(durations),
      pauses_(pauses),
      outages_(stage.options.outages ? stage.options.workers : 0),
      each_is_seen_(stage.options.record || stage.options.outages || stage.options.pauses ||
                    stage.options.network.overlap()),
      follows_samples_(stage.options.compute_time.follows_samples()) {
  if (outages_.empty()) return;
  for (const Rank worker : stage.workers())
    outages_[worker] = {.outages = stage.options.outages->of(worker),
                        .may_lose_state = stage.options.outages->loses_state(worker),
                        .has_lost_state = false,
                        .met = {}};
}

bool MicroBatches::may_lose_state(Rank rank) const {
  return !outages_.empty() && !stage_.is_server(rank) && outages_[rank].may_lose_state;
}

bool MicroBatches::has_lost_state(Rank rank) {
  return !outages_.empty() && std::exchange(outages_[rank].has_lost_state, false);
}

Duration MicroBatches::down_beyond(Rank worker, Time time) const {
  return outages_.empty() ? Duration{} : outages_[worker].down_beyond(time);
}

std::optional<Gradient> MicroBatches::compute(Rank rank, const ModelStatePtr& at, const MicroBatch& slot,
                                              const MicroBatch& samples, const Deadline& deadline) {
  if (!outages_.empty())
    if (const auto passage = meet_outages(rank, slot, samples, deadline))
      return pass_through(rank, at, slot, samples, *passage);
  if (deadline.at_message) return compute_until_message(rank, at, slot, samples, deadline);
  if (each_is_seen_) pauses_.end(rank);
  SimulatedParticipant& participant = stage_[rank];
  Book& book = participant.book;
  const Duration duration = duration_of(slot, samples);
  const MicroBatchEnd end = end_of_micro_batch(book.now(), duration, deadline);
  stage_.check_clock(rank, end.at);
  const Duration spent = end.at - book.now();
  const bool ends = spent < longest_duration;
  book.pass(end.kept && ends ? Activity::compute : Activity::discarded, end.at, label_of(slot));
  stage_.poll_interrupt();
  if (!ends) {  // an infinite delay: this worker is never heard of again
    participant.lost = true;
    Stage::suspend(participant, {"a micro-batch that never ends", SourceLine::current()});
  }
  if (!end.kept) return cut(at, samples, backward_share(spent, duration, deadline));
  book.compute(1, spent);
  if (each_is_seen_) {
    if (!stage_.last_micro_batches.empty())
      stage_.last_micro_batches[rank] = {end.at, spent, slot.index + 1 >= stage_.options.micro_batches};
    stage_.record_duration(rank, slot, spent);
    pauses_.begin(rank, slot, deadline);
  }
  return Gradient(at, samples, spent);
}

Gradient MicroBatches::compute_all(Rank rank, const ModelStatePtr& at, const MicroBatch& first, int count) {
  if (each_is_seen_) return compute_each(rank, at, first, count);
  const Duration spent = durations_.of_step(first, count);
  if (spent >= longest_duration) return compute_each(rank, at, first, count);
  Book& book = stage_[rank].book;
  const Time end = later(book.now(), spent);
  stage_.check_clock(rank, end);
  book.pass(Activity::compute, end, {});
  book.compute(count, spent);
  stage_.poll_interrupt();
  return Gradient(at, first, count, spent);
}

Gradient MicroBatches::compute_each(Rank rank, const ModelStatePtr& at, const MicroBatch& first, int count) {
  Gradient sum;
  for (MicroBatch next = first; next.index < first.index + count; ++next.index)
    sum += *compute(rank, at, next, next, {});
  return sum;
}

// A message that is there when the time is up has ended it.
std::optional<Gradient> MicroBatches::compute_until_message(Rank rank, const ModelStatePtr& at, const MicroBatch& slot,
                                                            const MicroBatch& samples, const Deadline& deadline) {
  SimulatedParticipant& participant = stage_[rank];
  Book& book = participant.book;
  const Duration duration = duration_of(slot, samples);
  const MicroBatchEnd end = end_of_micro_batch(book.now(), duration, deadline);
  const Duration spent = end.at - book.now();
  if (participant.inbox.empty()) {
    participant.computing = participant.interruptible = true;
    participant.lost = spent >= longest_duration;
    const Place place{"a micro-batch", SourceLine::current()};
    if (participant.lost)
      Stage::suspend(participant, place);
    else
      stage_.suspend_until(rank, end.at, place);
    participant.computing = participant.interruptible = participant.lost = false;
  }
  if (!participant.inbox.empty()) {
    book.pass(Activity::discarded, stage_.now(), label_of(slot));
    book.cancel();
    return std::nullopt;
  }
  stage_.check_clock(rank, end.at);
  book.pass(end.kept ? Activity::compute : Activity::discarded, end.at, label_of(slot));
  if (!end.kept) {
    if (spent > Duration{}) book.cancel();
    return std::nullopt;
  }
  book.compute(1, spent);
  stage_.record_duration(rank, slot, spent);
  return Gradient(at, samples, spent);
}

// Micro-batches that meet outages. Nothing where no outage begins before the micro-batch would end.
std::optional<Passage> MicroBatches::meet_outages(Rank rank, const MicroBatch& slot, const MicroBatch& samples,
                                                  const Deadline& deadline) {
  SimulatedParticipant& participant = stage_[rank];
  WorkerOutages& outages = outages_[rank].outages;
  const Outage& next = outages.next(participant.book.now());
  if (next.begin == never) return std::nullopt;
  const Duration duration = duration_of(slot, samples);
  const bool never_ends = duration >= longest_duration && deadline.at == never;
  if (never_ends || next.begin >= later(participant.book.now(), duration)) return std::nullopt;
  const Passage planned = pass(&outages, participant.book.now(), duration, deadline);
  return deadline.at_message ? wait_for_message(rank, planned) : planned;
}

// Books the whole passage at once: what was worked on is known to be kept or lost only at its end.
std::optional<Gradient> MicroBatches::pass_through(Rank rank, const ModelStatePtr& at, const MicroBatch& slot,
                                                   const MicroBatch& samples, const Passage& passage) {
  SimulatedParticipant& participant = stage_[rank];
  OutageProgress& progress = outages_[rank];
  stage_.check_clock(rank, passage.end);
  Book& book = participant.book;
  const Activity work = passage.kept ? Activity::compute : Activity::discarded;
  for (const auto& [end, down] : passage.pieces) {
    if (down) progress.add(book.now(), end, book.met_at());
    book.pass(down ? Activity::down : work, end, down ? SpanLabel{outage_name} : label_of(slot));
  }
  progress.has_lost_state = passage.lost_state;
  stage_.poll_interrupt();
  if (passage.is_timed_out) book.cancel();
  if (!passage.kept) return cut(at, samples, passage.backward);
  book.compute(1, passage.worked);
  stage_.record_duration(rank, slot, passage.worked);
  return Gradient(at, samples, passage.worked);
}

// What comes of the planned passage if a message may end it.
Passage MicroBatches::wait_for_message(Rank rank, const Passage& planned) {
  SimulatedParticipant& participant = stage_[rank];
  Passage passage{.end = participant.book.now()};
  for (const auto& [end, down] : planned.pieces) {
    const Time begin = passage.end;
    if (down || participant.inbox.empty()) wait_until(rank, end, !down);
    const bool is_cancelled = !down && !participant.inbox.empty();
    // A message that was there before is older than the worker's clock.
    passage.end = is_cancelled ? std::clamp(stage_.now(), begin, end) : end;
    if (passage.end > begin) passage.pieces.push_back({passage.end, down});
    if (!down) passage.worked += passage.end - begin;
    if (!is_cancelled) continue;
    participant.book.cancel();
    return passage;
  }
  passage.kept = planned.kept;
  passage.lost_state = planned.lost_state;
  passage.is_timed_out = !planned.kept && !planned.lost_state;
  return passage;
}

void MicroBatches::wait_until(Rank rank, Time until, bool interruptible) {
  SimulatedParticipant& participant = stage_[rank];
  participant.computing = true;
  participant.interruptible = interruptible;
  stage_.suspend_until(rank, until, {interruptible ? "a micro-batch" : "an outage", SourceLine::current()});
  participant.computing = participant.interruptible = false;
}

}  // namespace syncopate
