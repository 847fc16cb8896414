#include "workers/mpi/mpi_micro_batches.hpp"

#include <algorithm>
#include <utility>

#include "workers/mpi/mpi_wait.hpp"
#include "workers/process/interrupt.hpp"
#include "workers/training/gradient_sum.hpp"

namespace syncopate {

std::optional<Gradient> MpiMicroBatches::compute(const ModelStatePtr& at, const MicroBatch& slot,
                                                 const MicroBatch& samples, const Deadline& deadline) {
  outcome_ = {};
  const bool begins = stage_.clock.enter();  // else another process was in the middle of it
  if (interrupted()) throw Interrupted();
  if (stage_.options.servers > 0 || stage_.has_partial_sums || deadline.at_message || collectives_.are_under_way())
    waiting_.progress();
  const Time start = stage_.clock.booked();
  const bool is_up = !outages_ || outages_->next(start).begin > start;
  if (is_up && is_cancelled(deadline)) return cancel(slot);
  if (is_up && !end_of_micro_batch(start, Duration{0}, deadline).kept) return std::nullopt;  // not begun

  const bool emulates = stage_.options.pace == Pace::emulate || stage_.options.training.time_only();
  Duration drawn{};
  if (emulates)
    drawn = stage_.options.compute_time.duration(slot, samples);
  else
    drawn = stage_.options.compute_time.added(stage_.self, slot.step, static_cast<std::uint32_t>(slot.index));

  // Work that will certainly be lost is slept through, not computed: the time is the same. Of what takes longer than
  // what is drawn no more can be left.
  Passage passage = pass(start, drawn, deadline);
  const bool is_endless = stage_.options.servers == 0 && passage.worked >= longest_duration;
  const bool stops = deadline.preempt == Preempt::discard || deadline.preempt == Preempt::layer;
  const bool certain = emulates || stops;
  Duration injected{}, measured{};
  std::shared_ptr<GradientSum> sum;
  const bool is_used = passage.kept || passage.backward > 0;
  if ((is_used || !certain) && !passage.lost_state && !is_endless && !stage_.servers_are_gone()) {
    const Time begin = begins ? start : stage_.clock.now();
    sum = evaluate(at, samples);
    measured = stage_.clock.now() - begin;
    outcome_.is_evaluated = sum != nullptr;
    const double factor = stage_.options.compute_time.factor(stage_.self);
    const Duration total = emulates
                               ? std::max(drawn, measured)
                               : drawn + measured + from_seconds((std::max(factor, 1.0) - 1) * to_seconds(measured));
    injected = total - measured;
    passage = pass(start, total, deadline);
  }
  if (is_endless && !deadline.at_message) sleep_for_ever();
  for (const auto& [end, down] : passage.pieces) {
    sleep_until(end, down ? Deadline() : deadline, is_endless);
    if (down || !is_cancelled(deadline)) continue;
    if (emulates && sum) count_overrun(drawn, measured);
    book_passage(slot, passage, false);
    stage_.clock.book().cancel();
    return std::nullopt;
  }
  if (is_endless) sleep_for_ever();  // nobody is left who could send
  if (emulates && sum) count_overrun(drawn, measured);
  const Duration spent = book_passage(slot, passage, passage.kept);
  has_lost_state_ = passage.lost_state;
  if (deadline.at_message && !passage.kept && !passage.lost_state) stage_.clock.book().cancel();
  outcome_.is_kept = passage.kept;
  outcome_.is_cut = !passage.kept;
  outcome_.backward = passage.backward;
  outcome_.spent = spent;
  if (!passage.kept) return stage_.options.training.cut_gradient(std::move(sum), passage.backward);
  stage_.clock.book().compute(1, spent);
  const bool is_through = passage.end <= stage_.clock.booked();  // not cut short by the servers' end
  if (is_through && stage_.options.record && stage_.options.record->durations) record_duration(slot, spent, injected);
  return sum ? Gradient(std::move(sum), 1, spent) : Gradient(at, samples, spent);
}

Passage MpiMicroBatches::pass(Time start, Duration duration, const Deadline& deadline) {
  return syncopate::pass(outages_ ? &*outages_ : nullptr, start, duration, deadline);
}

// Books what has passed until now: as work lies in the passage, and as outages do. How long the work was.
Duration MpiMicroBatches::book_passage(const MicroBatch& slot, const Passage& passage, bool kept) {
  const Activity work = kept ? Activity::compute : Activity::discarded;
  const Time now = stage_.clock.now();
  Duration worked{};
  for (std::size_t i = 0; i < passage.pieces.size(); ++i) {
    const auto& [planned, down] = passage.pieces[i];
    const bool is_last = i + 1 == passage.pieces.size();
    const Time begin = stage_.clock.booked();
    stage_.clock.book_until(down ? Activity::down : work, is_last ? now : std::min(planned, now),
                            down ? SpanLabel{outage_name} : SpanLabel{micro_batch_name, slot.step, slot.index});
    if (!down) worked += stage_.clock.booked() - begin;
  }
  return worked;
}

std::optional<Gradient> MpiMicroBatches::computed_before(const ModelStatePtr& at, const MicroBatch& samples,
                                                         const Outcome& outcome) {
  std::shared_ptr<GradientSum> sum;
  if (outcome.is_evaluated) {
    sum = promise(at, samples);
    for (auto& chunk : sum->chunks) chunk.at = nullptr;
    sum->submitted = true;
  }
  if (outcome.is_kept) return sum ? Gradient(std::move(sum), 1, outcome.spent) : Gradient(at, samples, outcome.spent);
  if (!outcome.is_cut) return std::nullopt;
  return stage_.options.training.cut_gradient(std::move(sum), outcome.backward);
}

std::shared_ptr<GradientSum> MpiMicroBatches::promise(const ModelStatePtr& at, const MicroBatch& samples) const {
  double scale = 1;
  return fix_sum(Gradient(at, samples, {}), stage_.options.training.objective(), scale);
}

// The value now, left where the backward pass put it.
std::shared_ptr<GradientSum> MpiMicroBatches::evaluate(const ModelStatePtr& at, const MicroBatch& samples) {
  if (!at) return nullptr;  // time-only
  Training& training = stage_.options.training;
  training.executor().wait(at->parameters->producer);
  auto sum = promise(at, samples);
  for (auto& chunk : sum->chunks) {
    evaluate_chunk(chunk, std::exchange(chunk.at, nullptr), training.objective());
    if (collectives_.are_under_way()) waiting_.progress();
  }
  sum->submitted = true;
  return sum;
}

bool MpiMicroBatches::is_cancelled(const Deadline& deadline) {
  return deadline.at_message && stage_.post.has_first(MpiPost::Kind::message);
}

std::optional<Gradient> MpiMicroBatches::cancel(const MicroBatch& slot) {
  stage_.clock.book(Activity::discarded, {micro_batch_name, slot.step, slot.index});
  stage_.clock.book().cancel();
  return std::nullopt;
}

void MpiMicroBatches::count_overrun(Duration drawn, Duration measured) {
  ++emulation_.emulated;
  if (measured <= drawn) return;
  ++emulation_.overruns;
  emulation_.overrun_excess += measured - drawn;
}

void MpiMicroBatches::record_duration(const MicroBatch& slot, Duration spent, Duration injected) {
  const bool emulates = stage_.options.pace == Pace::emulate || stage_.options.training.time_only();
  const Duration added =
      emulates ? stage_.options.compute_time.added(stage_.self, slot.step, static_cast<std::uint32_t>(slot.index))
               : injected;
  stage_.options.record->durations->push_back({stage_.self, slot.step, slot.index, spent, added});
}

// In slices, so that messages keep flowing, an interrupt is heard, and the end of the servers ends a
// sleep of any length. Short ones where somebody waits for what this rank sends, or it for a message; none while values
// of a collective are on their way and cores suffice, since MPI moves a piece of them at each call.
void MpiMicroBatches::sleep_until(Time end, const Deadline& deadline, bool is_endless) {
  constexpr Duration slice = std::chrono::milliseconds(2);
  constexpr Duration short_slice = std::chrono::microseconds(200);
  const bool ends = end - stage_.now() < longest_duration / 2;
  waiting_.begin();
  const bool is_awaited =
      deadline.at_message || (stage_.is_coordinator() && stage_.has_partial_sums) || collectives_.are_under_way();
  for (Time at = stage_.now(); at < end; at = stage_.now()) {
    if (interrupted()) throw Interrupted();
    waiting_.progress();
    if (stage_.servers_are_gone() || is_cancelled(deadline)) return;
    waiting_.stop();
    if (is_endless && mail_.nobody_can_send({})) return;
    if (!ends) waiting_.look_for_standstill({.state = "in a micro-batch that never ends"});
    if (stage_.communicators.cores_suffice() && collectives_.are_moving()) continue;
    const Time wake = std::min(end, later(at, is_awaited || stage_.post.sending() ? short_slice : slice));
    sleep_until_monotonic(stage_.clock.to_monotonic_ns(wake));
  }
  if (deadline.at_message) waiting_.progress();
}

// A worker in a micro-batch that never ends is never heard of again. It ends when all others have, or are
// in such a micro-batch themselves.
void MpiMicroBatches::sleep_for_ever() {
  if (!std::exchange(stage_.is_lost, true)) {  // else another process has said so
    partial_sums_.drop_results();
    stage_.post.announce(MpiPost::News::lost, stage_.meetings);
  }
  waiting_.begin();
  while (!stage_.others_are_through()) {
    if (interrupted()) throw Interrupted();
    waiting_.progress();
    waiting_.stop();
    if (!stage_.others_are_through()) waiting_.look_for_standstill({.state = "in a micro-batch that never ends"});
    sleep_until_monotonic(stage_.clock.to_monotonic_ns(later(stage_.now(), std::chrono::milliseconds(2))));
  }
  stage_.clock.book(Activity::discarded, {"a micro-batch that never ends"});
  if (stage_.post.count_announced(MpiPost::News::ended, 0, stage_.options.workers) == 0)
    throw RunFailure("no worker can go on: all are in a micro-batch that never ends");
  throw NeverHeardOfAgain();
}

}  // namespace syncopate
