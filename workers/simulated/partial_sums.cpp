#include "workers/simulated/partial_sums.hpp"

#include <algorithm>
#include <utility>

namespace syncopate {

std::vector<PartialSum> PartialSums::all_reduce(Rank self, Gradient gradient, const Activation& activation,
                                                LateGradient late, const Contribution& part, const Place& place) {
  are_used_ = true;
  pauses_.end_trailing_work(self);
  SimulatedParticipant& participant = stage_[self];
  Book& book = participant.book;
  // This worker may have run ahead of everybody's time.
  stage_.schedule(book.now(), Event::Kind::arrive_partial, self);
  Stage::suspend(participant, place);

  OfWorker& own = by_worker_[self];
  const bool in_time = own.next == open_.number && !open_.under_way;
  if (in_time) {
    open_.activation = activation;
    open_.arrived.push_back(self);
    if (own.late.waits()) contribute_late(self);
    contribute(self, std::move(gradient), part);
  } else if (late == LateGradient::drop) {
    book.lose(gradient.compute_time());
    book.contribute({.planned = part.planned}, open_.row);
  } else {
    if (!own.late.waits()) open_.accumulated.push_back(self);
    own.late.gradient += gradient;
    own.late.part.kept += part.kept;
    own.late.part.planned += part.planned;
  }

  if (own.next == open_.number) {
    open_.waiting.push_back(self);
    if (in_time) begin_if_due();
    Stage::suspend(participant, place);
    book.pass(Activity::wait, open_.begun_at, {place.operation});
    book.pass(Activity::communicate, stage_.now(), {place.operation});
    book.meet();
  }
  return results_for(own);
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
  const CollectiveCall call{.members = stage_.options.workers,
                            .payload = stage_.options.training.parameter_bytes(),
                            .number = traffic_.next_collective()};
  traffic_.begin_collective(stage_.now(), call, Event::Kind::finish_partial, nullptr);
}

void PartialSums::end_sum() {
  ++stage_.collectives;
  stage_.kept += open_.row.kept;
  Gradient sum = stage_.options.training.share(std::exchange(open_.sum, {}));
  sum.mark_reduced();
  open_.results.push_back({.sum = std::move(sum),
                           .contributors = open_.contributors,
                           .agreement = {.time = stage_.now(), .micro_batches = stage_.kept, .bytes = stage_.bytes}});
  ++open_.number;
  open_.under_way = false;
  open_.arrived.clear();
  StepRow row = std::exchange(open_.row, {});
  row.step = open_.number;
  row.period = 1;
  stage_.rows.close(row, stage_.now(), stage_.bytes);
  for (const Rank worker : std::exchange(open_.waiting, {})) stage_.resume(worker);

  // Results that everybody has got, or will never ask for.
  Step needed = open_.number;
  for (const Rank worker : stage_.workers())
    if (!stage_[worker].ended && !stage_[worker].lost) needed = std::min(needed, by_worker_[worker].next);
  while (open_.number - Step{static_cast<Step::Rep>(open_.results.size())} < needed) open_.results.pop_front();
}

// All results since the last one that this worker has got, oldest first.
std::vector<PartialSum> PartialSums::results_for(OfWorker& worker) {
  const auto count = static_cast<std::ptrdiff_t>((open_.number - worker.next).value());
  worker.next = open_.number;
  return {open_.results.end() - count, open_.results.end()};
}

}  // namespace syncopate
