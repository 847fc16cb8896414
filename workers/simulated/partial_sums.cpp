#include "workers/simulated/partial_sums.hpp"

#include <algorithm>
#include <utility>

namespace syncopate {

StartedCollective PartialSums::start(Rank self, Collective&& what, const Contribution& part, const Place& place) {
  are_used_ = true;
  pauses_.end_trailing_work(self);
  OfWorker& own = by_worker_[self];
  if (std::exchange(own.has_one_under_way, true))
    throw RunFailure(stage_.name(self) + " starts a partial all-reduce before it has finished the one before");
  meet_the_others(self, place);
  rounds_.arrive(own.next.value(), self, stage_[self].book.now());
  own.in_time = own.next == open_.number && !open_.under_way;
  ++stage_[self].collectives_under_way;
  if (own.in_time) {
    open_.activation = what.activation;
    open_.arrived.push_back(self);
    if (const auto overlap = stage_.options.network.overlap())
      open_.buckets.arrive(*overlap, stage_[self].book.now(), stage_.last_micro_batch_of(self));
    if (own.late.waits()) contribute_late(self);
    contribute(self, std::move(what.gradient), part);
    begin_if_due();
  } else if (what.late == LateGradient::drop) {
    Book& book = stage_[self].book;
    book.lose(what.gradient.compute_time());
    book.contribute({.planned = part.planned}, open_.row);
  } else {
    if (!own.late.waits()) open_.accumulated.push_back(self);
    own.late.gradient += what.gradient;
    own.late.part.kept += part.kept;
    own.late.part.planned += part.planned;
  }
  return {Collective::Kind::partial_all_reduce, std::nullopt, own.next.value(), part.step};
}

CollectiveResult PartialSums::finish(Rank self, const Place& place) {
  pauses_.end_trailing_work(self);
  SimulatedParticipant& participant = stage_[self];
  Book& book = participant.book;
  OfWorker& own = by_worker_[self];
  own.has_one_under_way = false;
  --stage_[self].collectives_under_way;
  if (book.now() > stage_.now()) meet_the_others(self, place);  // it has computed since the start
  if (own.next == open_.number) {
    open_.waiting.push_back(self);
    Stage::suspend(participant, place);
    book.pass(Activity::wait, open_.begun_at, {place.operation});
    book.pass(Activity::communicate, stage_.now(), {place.operation});
    book.meet();
  }
  CollectiveResult result{.sums = results_for(own)};
  result.agreement = result.sums.back().agreement;
  return result;
}

// A worker may have run ahead of everybody's time.
void PartialSums::meet_the_others(Rank worker, const Place& place) {
  stage_.schedule(stage_[worker].book.now(), Event::Kind::arrive_partial, worker);
  Stage::suspend(stage_[worker], place);
}

void PartialSums::contribute(Rank worker, Gradient gradient, const Contribution& part) {
  stage_[worker].book.contribute(part, open_.row);
  open_.sum += std::move(gradient);
}

void PartialSums::contribute_late(Rank worker) {
  Late late = std::exchange(by_worker_[worker].late, {});
  contribute(worker, std::move(late.gradient), late.part);
}

void PartialSums::begin_if_due() {
  if (open_.under_way || open_.arrived.empty()) return;
  int quorum = std::min(open_.activation.quorum, stage_.options.workers - stage_.leaves);
  if (open_.activation.rank) {
    const Rank rank = *open_.activation.rank;
    const bool is_there = std::ranges::find(open_.arrived, rank) != open_.arrived.end();
    quorum = is_there || stage_[rank].left ? 1 : stage_.options.workers + 1;
  }
  if (static_cast<int>(open_.arrived.size()) < quorum) return;

  open_.under_way = true;
  open_.begun_at = stage_.now();
  open_.contributors = static_cast<int>(open_.arrived.size());
  for (const Rank worker : std::exchange(open_.accumulated, {})) {
    if (!by_worker_[worker].late.waits()) continue;  // brought in by its own arrival
    contribute_late(worker);
    ++open_.contributors;
  }
  const CollectiveCall call{.operation = properties_of(Collective::Kind::partial_all_reduce).operation,
                            .members = stage_.options.workers,
                            .payload = stage_.options.training.parameter_bytes(),
                            .number = traffic_.next_collective()};
  if (stage_.options.network.overlap() && call.members > 1)
    traffic_.begin_collective(stage_.now(), call, Event::Kind::finish_partial, nullptr,
                              open_.buckets.end(stage_.options.network, call, open_.free_from) - stage_.now());
  else
    traffic_.begin_collective(stage_.now(), call, Event::Kind::finish_partial, nullptr);
}

void PartialSums::end_sum() {
  ++stage_.collectives;
  stage_.kept += open_.row.kept;
  Gradient sum = stage_.options.training.share(std::exchange(open_.sum, {}));
  sum.mark_reduced();
  open_.results.push_back({.sum = std::move(sum),
                           .contributors = open_.contributors,
                           .arrived = static_cast<int>(open_.arrived.size()),
                           .agreement = {.time = stage_.now(), .micro_batches = stage_.kept, .bytes = stage_.bytes}});
  ++open_.number;
  open_.under_way = false;
  open_.arrived.clear();
  open_.buckets = {};
  open_.free_from = stage_.now();
  StepRow row = std::exchange(open_.row, {});
  row.step = open_.number;
  row.period = 1;
  stage_.rows.close(row, stage_.now(), stage_.bytes);
  rounds_.begin_next(stage_.now());
  for (const Rank worker : std::exchange(open_.waiting, {})) stage_.resume(worker);

  // Results that everybody has got, or will never ask for.
  Step needed = open_.number;
  for (const Rank worker : stage_.workers())
    if (!stage_[worker].ended && !stage_[worker].lost) needed = std::min(needed, by_worker_[worker].next);
  while (open_.number - Step{static_cast<Step::Rep>(open_.results.size())} < needed) open_.results.pop_front();
}

// Its own, or all since the last one that this worker has got.
std::vector<PartialSum> PartialSums::results_for(OfWorker& worker) {
  const Step first = worker.next;
  worker.next = worker.in_time ? first + 1 : open_.number;
  const auto end = open_.results.end();
  const auto from_end = [&](Step number) { return static_cast<std::ptrdiff_t>((open_.number - number).value()); };
  return {end - from_end(first), end - from_end(worker.next)};
}

}  // namespace syncopate
