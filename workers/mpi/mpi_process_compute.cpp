// The time and the arithmetic of a micro-batch on an MPI rank.
#include <algorithm>

#include "workers/mpi/mpi_process.hpp"
#include "workers/mpi/mpi_wait.hpp"
#include "workers/process/interrupt.hpp"
#include "workers/training/gradient_sum.hpp"

namespace syncopate {

std::optional<Gradient> MpiCluster::Process::compute_gradient(const ModelStatePtr& at, const MicroBatch& slot,
                                                              const MicroBatch& samples, const Deadline& deadline) {
  clock_.book(Activity::compute);
  if (interrupted()) throw Interrupted();
  if (options_.servers > 0 || partial_used_ || deadline.at_message || has_collectives_under_way()) progress();
  const Time start = clock_.booked();
  const bool is_up = !outages_ || outages_->next(start).begin > start;
  if (is_up && is_cancelled(deadline)) return cancel(slot);
  if (is_up && !end_of_micro_batch(start, Duration{0}, deadline).kept) return std::nullopt;  // not begun

  const bool emulates = options_.pace == Pace::emulate || options_.training.time_only();
  Duration drawn{};
  if (emulates)
    options_.compute_time.durations(self_, slot.step, static_cast<std::uint32_t>(slot.index), {&drawn, 1});
  else
    drawn = options_.compute_time.added(self_, slot.step, static_cast<std::uint32_t>(slot.index));

  // Work that will certainly be lost is slept through, not computed: the time is the same.
  Passage passage = pass(start, drawn, deadline);
  const bool is_endless = options_.servers == 0 && passage.worked >= longest_duration;
  const bool certain = emulates || deadline.preempt == Preempt::discard;
  Duration injected{};
  std::shared_ptr<GradientSum> sum;
  if ((passage.kept || !certain) && !passage.lost_state && !is_endless && !servers_are_gone()) {
    sum = evaluate(at, samples);
    const Duration measured = clock_.now() - start;
    const double factor = options_.compute_time.factor(self_);
    const Duration total = emulates
                               ? std::max(drawn, measured)
                               : drawn + measured + from_seconds((std::max(factor, 1.0) - 1) * to_seconds(measured));
    injected = total - measured;
    if (emulates && sum) count_overrun(drawn, measured);
    passage = pass(start, total, deadline);
  }
  if (is_endless && !deadline.at_message) sleep_for_ever();
  for (const auto& [end, down] : passage.pieces) {
    sleep_until(end, down ? Deadline() : deadline, is_endless);
    if (down || !is_cancelled(deadline)) continue;
    book_passage(slot, passage, false);
    clock_.book().cancel();
    return std::nullopt;
  }
  if (is_endless) sleep_for_ever();  // nobody is left who could send
  const Duration spent = book_passage(slot, passage, passage.kept);
  has_lost_state_ = passage.lost_state;
  if (!passage.kept) return std::nullopt;
  clock_.book().compute(1, spent);
  const bool is_through = passage.end <= clock_.booked();  // not cut short by the servers' end
  if (is_through && options_.record && options_.record->durations) record_duration(slot, spent, injected);
  return sum ? Gradient(std::move(sum), 1, spent) : Gradient(at, samples, spent);
}

Passage MpiCluster::Process::pass(Time start, Duration duration, const Deadline& deadline) {
  return syncopate::pass(outages_ ? &*outages_ : nullptr, start, duration, deadline);
}

// Books what has passed until now: as work lies in the passage, and as outages do. How long the work was.
Duration MpiCluster::Process::book_passage(const MicroBatch& slot, const Passage& passage, bool kept) {
  const Activity work = kept ? Activity::compute : Activity::discarded;
  const Time now = clock_.now();
  Duration worked{};
  for (std::size_t i = 0; i < passage.pieces.size(); ++i) {
    const auto& [planned, down] = passage.pieces[i];
    const bool is_last = i + 1 == passage.pieces.size();
    const Time begin = clock_.booked();
    clock_.book_until(down ? Activity::down : work, is_last ? now : std::min(planned, now),
                      down ? SpanLabel{outage_name} : SpanLabel{micro_batch_name, slot.step, slot.index});
    if (!down) worked += clock_.booked() - begin;
  }
  return worked;
}

// The value now, left where the backward pass put it.
std::shared_ptr<GradientSum> MpiCluster::Process::evaluate(const ModelStatePtr& at, const MicroBatch& samples) {
  if (!at) return nullptr;  // time-only
  Training& training = options_.training;
  training.executor().wait(at->parameters->producer);
  double scale = 1;
  auto sum = fix_sum(Gradient(at, samples, {}), training.objective(), scale);
  for (auto& chunk : sum->chunks) {
    evaluate_chunk(chunk, training.objective());
    if (has_collectives_under_way()) progress();
  }
  sum->submitted = true;
  return sum;
}

bool MpiCluster::Process::is_cancelled(const Deadline& deadline) {
  return deadline.at_message && post_->has_first(MpiPost::Kind::message);
}

std::optional<Gradient> MpiCluster::Process::cancel(const MicroBatch& slot) {
  clock_.book(Activity::discarded, {micro_batch_name, slot.step, slot.index});
  clock_.book().cancel();
  return std::nullopt;
}

void MpiCluster::Process::count_overrun(Duration drawn, Duration measured) {
  ++emulation_.emulated;
  if (measured <= drawn) return;
  ++emulation_.overruns;
  emulation_.overrun_excess += measured - drawn;
}

void MpiCluster::Process::record_duration(const MicroBatch& slot, Duration spent, Duration injected) {
  const bool emulates = options_.pace == Pace::emulate || options_.training.time_only();
  const Duration added =
      emulates ? options_.compute_time.added(self_, slot.step, static_cast<std::uint32_t>(slot.index)) : injected;
  options_.record->durations->push_back({self_, slot.step, slot.index, spent, added});
}

// In slices, so that messages keep flowing, an interrupt is heard, and the end of the servers ends a
// sleep of any length. Short ones where somebody waits for what this rank sends, or it for a message.
void MpiCluster::Process::sleep_until(Time end, const Deadline& deadline, bool is_endless) {
  constexpr Duration slice = std::chrono::milliseconds(2);
  constexpr Duration short_slice = std::chrono::microseconds(200);
  const bool ends = end - now() < longest_duration / 2;
  begin_wait();
  const bool is_awaited = deadline.at_message || (is_coordinator() && partial_used_) || has_collectives_under_way();
  for (Time at = now(); at < end; at = now()) {
    if (interrupted()) throw Interrupted();
    progress();
    if (servers_are_gone() || is_cancelled(deadline)) return;
    if (is_endless && nobody_can_send({})) return;
    if (!ends) look_for_standstill({.state = "in a micro-batch that never ends"});
    const Time wake = std::min(end, later(at, is_awaited || post_->sending() ? short_slice : slice));
    sleep_until_monotonic(clock_.to_monotonic_ns(wake));
  }
  if (deadline.at_message) progress();
}

// A worker in a micro-batch that never ends is never heard of again. It ends when all others have, or are
// in such a micro-batch themselves.
void MpiCluster::Process::sleep_for_ever() {
  is_lost_ = true;
  results_.clear();
  post_->announce(MpiPost::News::lost, all_->started);
  begin_wait();
  while (!others_are_through()) {
    if (interrupted()) throw Interrupted();
    progress();
    if (!others_are_through()) look_for_standstill({.state = "in a micro-batch that never ends"});
    sleep_until_monotonic(clock_.to_monotonic_ns(later(now(), std::chrono::milliseconds(2))));
  }
  clock_.book(Activity::discarded, {"a micro-batch that never ends"});
  if (post_->count_announced(MpiPost::News::ended, 0, options_.workers) == 0)
    throw RunFailure("no worker can go on: all are in a micro-batch that never ends");
  throw NeverHeardOfAgain();
}

}  // namespace syncopate
