#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {

MicroBatches::MicroBatches(SimulationState& state, DurationPrefetch& durations, SleepTracker& pauses)
    : state_(state),
      durations_(durations),
      pauses_(pauses),
      outages_(state.options.outages ? state.options.workers : 0),
      each_is_seen_(state.options.record || state.options.outages || state.options.pauses ||
                    state.options.network.overlap()),
      follows_samples_(state.options.compute_time.follows_samples()) {
  if (outages_.empty()) return;
  for (const Rank worker : state.workers())
    outages_[worker] = {.outages = state.options.outages->of(worker),
                        .may_lose_state = state.options.outages->loses_state(worker)};
}

std::optional<Gradient> MicroBatches::compute(Rank rank, const ModelStatePtr& at, const MicroBatch& slot,
                                              const MicroBatch& samples, const Deadline& deadline) {
  if (!outages_.empty())
    if (const auto passage = meet_outages(rank, slot, samples, deadline))
      return pass_through(rank, at, slot, samples, *passage);
  if (deadline.at_message) return compute_until_message(rank, at, slot, samples, deadline);
  if (each_is_seen_) pauses_.end(rank);
  SimulatedParticipant& participant = state_[rank];
  Book& book = participant.book;
  const Duration duration = duration_of(slot, samples);
  const MicroBatchEnd end = end_of_micro_batch(book.now(), duration, deadline);
  state_.check_clock(rank, end.at);
  const Duration spent = end.at - book.now();
  const bool ends = spent < longest_duration;
  book.pass(end.kept && ends ? Activity::compute : Activity::discarded, end.at, label_of(slot));
  state_.poll_interrupt();
  if (!ends) {  // the micro-batch has an infinite delay
    participant.lost = true;
    SimulationState::suspend(participant, {"a micro-batch that never ends", SourceLine::current()});
  }
  if (!end.kept) return cut(at, samples, backward_share(spent, duration, deadline));
  book.compute(1, spent);
  if (each_is_seen_) {
    if (!state_.last_micro_batches.empty())
      state_.last_micro_batches[rank] = {end.at, spent, slot.index + 1 >= state_.options.micro_batches};
    state_.record_duration(rank, slot, spent);
    pauses_.begin(rank, slot, deadline);
  }
  return Gradient(at, samples, spent);
}

Gradient MicroBatches::compute_all(Rank rank, const ModelStatePtr& at, const MicroBatch& first, int count) {
  if (each_is_seen_) return compute_each(rank, at, first, count);
  const Duration spent = durations_.of_step(first, count);
  if (spent >= longest_duration) return compute_each(rank, at, first, count);
  Book& book = state_[rank].book;
  const Time end = later(book.now(), spent);
  state_.check_clock(rank, end);
  book.pass(Activity::compute, end, {});
  book.compute(count, spent);
  state_.poll_interrupt();
  return Gradient(at, first, count, spent);
}

Gradient MicroBatches::compute_each(Rank rank, const ModelStatePtr& at, const MicroBatch& first, int count) {
  Gradient sum;
  for (MicroBatch next = first; next.index < first.index + count; ++next.index)
    sum += *compute(rank, at, next, next, {});
  return sum;
}

// Computes one micro-batch, unless a message is in the inbox, or arrives before the micro-batch ends or exactly then.
// Such a message cancels the micro-batch.
std::optional<Gradient> MicroBatches::compute_until_message(Rank rank, const ModelStatePtr& at, const MicroBatch& slot,
                                                            const MicroBatch& samples, const Deadline& deadline) {
  SimulatedParticipant& participant = state_[rank];
  Book& book = participant.book;
  const Duration duration = duration_of(slot, samples);
  const MicroBatchEnd end = end_of_micro_batch(book.now(), duration, deadline);
  const Duration spent = end.at - book.now();
  if (participant.inbox.empty()) {
    participant.computing = participant.interruptible = true;
    participant.lost = spent >= longest_duration;
    const Place place{"a micro-batch", SourceLine::current()};
    if (participant.lost)
      SimulationState::suspend(participant, place);
    else
      state_.suspend_until(rank, end.at, place);
    participant.computing = participant.interruptible = participant.lost = false;
  }
  if (!participant.inbox.empty()) {
    book.pass(Activity::discarded, state_.now(), label_of(slot));
    book.cancel();
    return std::nullopt;
  }
  state_.check_clock(rank, end.at);
  book.pass(end.kept ? Activity::compute : Activity::discarded, end.at, label_of(slot));
  if (!end.kept) {
    if (spent > Duration{}) book.cancel();
    return std::nullopt;
  }
  book.compute(1, spent);
  state_.record_duration(rank, slot, spent);
  return Gradient(at, samples, spent);
}

// Returns the micro-batch's passage through outages; nullopt if no outage begins before it would end.
std::optional<Passage> MicroBatches::meet_outages(Rank rank, const MicroBatch& slot, const MicroBatch& samples,
                                                  const Deadline& deadline) {
  SimulatedParticipant& participant = state_[rank];
  WorkerOutages& outages = outages_[rank].outages;
  const Outage& next = outages.next(participant.book.now());
  if (next.begin == never) return std::nullopt;
  const Duration duration = duration_of(slot, samples);
  const bool never_ends = duration >= longest_duration && deadline.at == never;
  if (never_ends || next.begin >= later(participant.book.now(), duration)) return std::nullopt;
  const Passage planned = pass(&outages, participant.book.now(), duration, deadline);
  return deadline.at_message ? wait_for_message(rank, planned) : planned;
}

// Books the whole passage at once, because only its end decides whether the work is kept or lost.
std::optional<Gradient> MicroBatches::pass_through(Rank rank, const ModelStatePtr& at, const MicroBatch& slot,
                                                   const MicroBatch& samples, const Passage& passage) {
  SimulatedParticipant& participant = state_[rank];
  OutageProgress& progress = outages_[rank];
  state_.check_clock(rank, passage.end);
  Book& book = participant.book;
  const Activity work = passage.kept ? Activity::compute : Activity::discarded;
  for (const auto& [end, down] : passage.pieces) {
    if (down) progress.add(book.now(), end, book.met_at());
    book.pass(down ? Activity::down : work, end, down ? SpanLabel{outage_name} : label_of(slot));
  }
  progress.has_lost_state = passage.lost_state;
  state_.poll_interrupt();
  if (passage.is_timed_out) book.cancel();
  if (!passage.kept) return cut(at, samples, passage.backward);
  book.compute(1, passage.worked);
  state_.record_duration(rank, slot, passage.worked);
  return Gradient(at, samples, passage.worked);
}

// Returns the passage that really happens: `planned`, or less of it if a message cuts it short.
Passage MicroBatches::wait_for_message(Rank rank, const Passage& planned) {
  SimulatedParticipant& participant = state_[rank];
  Passage passage{.end = participant.book.now()};
  for (const auto& [end, down] : planned.pieces) {
    const Time begin = passage.end;
    if (down || participant.inbox.empty()) {
      participant.computing = true;
      participant.interruptible = !down;
      state_.suspend_until(rank, end, {down ? "an outage" : "a micro-batch", SourceLine::current()});
      participant.computing = participant.interruptible = false;
    }
    const bool is_cancelled = !down && !participant.inbox.empty();
    // A message that was in the inbox from the start arrived before `begin`, hence the clamp.
    passage.end = is_cancelled ? std::clamp(state_.now(), begin, end) : end;
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

void AsynchronousRows::contribute(Rank worker, const Contribution& part) {
  last_[worker] = part.step;
  auto& [row, workers] = open_[part.step];
  ++workers;
  Book& book = state_[worker].book;
  book.contribute(part, row);
  row.end = std::max(row.end, book.now());
  close_complete();
}

// Closes rows in the order of steps, as long as no worker will add to them any more.
void AsynchronousRows::close_complete() {
  while (!open_.empty()) {
    const auto& [step, open] = *open_.begin();
    const auto& [row, workers] = open;
    int expected = state_.options.workers;
    for (const auto& [last, ended] : ended_after_)
      if (last < step) expected -= ended;
    if (workers < expected) return;
    state_.kept += row.kept;
    state_.rows.close(row, row.end, state_.bytes);
    open_.erase(open_.begin());
  }
}

SimulatedCluster::SimulatedCluster(const SimulatedOptions& options)
    : state_(options),
      durations_(options.compute_time, options.workers, options.micro_batches),
      pauses_(state_),
      traffic_(state_),
      micro_batches_(state_, durations_, pauses_),
      collectives_(state_, traffic_, pauses_),
      partial_sums_(state_, traffic_, pauses_),
      messages_(state_, traffic_, durations_),
      asynchronous_rows_(state_) {
  if (servers().regions > 0) served_left_ = ByRank<int>(state_.size());
}

// Destroys the fibers first, because unfinished programs hold objects that other members of this cluster own.
SimulatedCluster::~SimulatedCluster() { state_.clear(); }

RunTotals SimulatedCluster::run(const Program& work, const Program& serve) {
  for (const Rank rank : state_.everybody()) begin(rank, is_server(rank) ? serve : work);
  try {
    for (const Rank rank : state_.everybody()) state_.resume(rank);
    event_loop();
  } catch (...) {
    state_.clear();
    throw;
  }
  return totals();
}

void SimulatedCluster::begin(Rank rank, const Program& program) {
  state_[rank].fiber.emplace(state_.stacks, static_cast<std::size_t>(rank.value), [this, rank, program] {
    try {
      program(rank);
    } catch (const boost::context::detail::forced_unwind&) {
      throw;  // the cluster is being destroyed
    } catch (...) {
      state_.failure = std::current_exception();
    }
    state_[rank].ended = true;
    if (!is_server(rank)) {
      ++state_.ended_workers;
      asynchronous_rows_.leave(rank);
    } else {  // the run ends with its last server
      Time end = start_time;
      for (const Rank server : state_.servers())
        end = state_[server].ended ? std::max(end, state_[server].book.now()) : never;
      state_.run_ended_at = end;
    }
    traffic_.schedule_leave(rank);
  });
}

void SimulatedCluster::event_loop() {
  bool is_end_of_clock = false;
  while (state_.has_events()) {
    const Event event = state_.pop_event();
    is_end_of_clock = event.at == never;
    if (is_end_of_clock) break;
    fetch_what_comes_next();
    state_.advance_to(event.at);
    state_.poll_interrupt();
    handle(event);
  }
  // A run with servers is over when these have ended, a run without servers when all workers but lost ones have ended.
  bool has_ended = true, has_anybody_ended = false;
  for (const Rank rank : servers() > 0 ? state_.servers() : state_.workers()) {
    has_ended &= state_[rank].ended || state_[rank].lost;
    has_anybody_ended |= state_[rank].ended;
  }
  if (!has_ended || !has_anybody_ended)
    throw RunFailure(is_end_of_clock ? explain_end_of_clock("the cluster") : explain_deadlock());
  state_.clear();
}

// Prefetches memory for the coming events, because with thousands of workers none of it is in a near cache. For an
// event that comes soon it fetches the fiber's stack, for later events the memory that leads to their stacks. It is one
// function with a local lambda, because the compiler removes calls of functions that only prefetch.
void SimulatedCluster::fetch_what_comes_next() const {
  constexpr std::size_t soon = 2, later = 4;  // number of events ahead
  const auto fetch = [](const void* from, int lines) {
    for (int line = 0; line < lines; ++line) __builtin_prefetch(static_cast<const char*>(from) + 64 * line, 1);
  };
  const auto events = state_.next_events();
  if (events.size() >= later) {
    const Event& event = events[events.size() - later];
    fetch(&state_[event.rank], 2);
    if (event.delivery) fetch(event.delivery, 2);
  }
  const auto timers = state_.next_few_timers();
  for (const Timer& timer : timers) fetch(&state_[timer.rank], 2);
  const bool is_timer = !timers.empty() && (events.empty() || timers.front().at < events.back().at);
  if (!is_timer && events.size() < soon) return;
  const Event* const event = is_timer ? nullptr : &events[events.size() - soon];
  if (event && event->kind != Event::Kind::deliver) return;
  const Rank receiver = event ? event->rank : timers.front().rank;
  if (is_server(receiver)) {
    if (event) fetch(&state_[event->delivery->from].book.tally(), 1);  // the fate of the gradient is booked there
    return;
  }
  if (const auto& fiber = state_[receiver].fiber) fiber->prefetch();
  durations_.prefetch(receiver);
}

void SimulatedCluster::handle(const Event& event) {
  const Rank rank = event.rank;
  if (event.kind == Event::Kind::resume && state_[rank].wake != event.number) return;  // the timer of an ended wait
  ++events_;
  switch (event.kind) {
    case Event::Kind::resume:  // a computing worker books its own time
      return state_[rank].computing ? state_.resume(rank) : messages_.give_up(rank);
    case Event::Kind::deliver:
      return messages_.deliver(rank, event.delivery);
    case Event::Kind::finish_collective:
      return event.group ? collectives_.end_collective(*event.group) : partial_sums_.end_sum();
    case Event::Kind::arrive_partial:
      return state_.resume(rank);
    case Event::Kind::enter_link:
      return traffic_.enter_link(rank, event.delivery);
    case Event::Kind::enter_links:
      return traffic_.enter_links(event.group);
    case Event::Kind::leave:
      return leave(rank);
  }
}

void SimulatedCluster::leave(Rank rank) {
  state_[rank].left = true;
  if (!served_left_.empty()) ++served_left_[servers().server_of(rank, workers())];
  if (is_server(rank)) {
    ++state_.servers_left;
  } else {
    ++state_.leaves;
    collectives_.notify_of_leave(rank);
    partial_sums_.notify_of_leave();
  }
  messages_.notify_of_leave(rank);
}

void SimulatedCluster::keep(Rank, const BookedTime& work, Step staleness) {
  const auto steps = static_cast<std::size_t>(staleness.value());
  if (staleness_.size() <= steps) staleness_.resize(steps + 1);
  ++staleness_[steps];
  state_[work.worker].book.keep(work);
}

std::string SimulatedCluster::explain_deadlock() const {
  Deadlock deadlock{.at = state_.now()};
  for (const Rank rank : state_.everybody()) {
    const SimulatedParticipant& participant = state_[rank];
    const std::string state = what_it_waits_for(participant.waits_for ? &*participant.waits_for : nullptr);
    if (is_server(rank))
      deadlock.servers.emplace_back(servers() == 1 ? "server" : state_.name(rank), state);
    else
      deadlock.workers_by_state[state].push_back(rank.value);
    deadlock.after_loss |= participant.lost;
  }
  return explain(deadlock);
}

// The run ends at T, when its last worker ends. With servers it ends when the last server ends, or at a later
// collective of workers; their messages may still be in flight. With partial all-reduces it ends at the last time that
// workers met. A worker beyond T has run ahead with a computation that came too late, so its time is cut at T.
RunTotals SimulatedCluster::totals() {
  RunTotals totals;
  const bool with_servers = servers() > 0;
  const DecidedBy decided_by = with_servers ? DecidedBy::servers : DecidedBy::workers;
  for (const Rank rank : state_.everybody()) {
    const SimulatedParticipant& participant = state_[rank];
    const bool decides = with_servers ? is_server(rank) : !partial_sums_.are_used();
    totals.end =
        std::max(totals.end, decides && !participant.lost ? participant.book.now() : participant.book.met_at());
  }
  for (const Rank worker : state_.workers()) {
    Book& book = state_[worker].book;
    const PartialSums::Late& late = partial_sums_.left_over(worker);
    book.lose(late.gradient.compute_time());
    book.drop(late.part.planned);
    const Duration down_beyond = micro_batches_.down_beyond(worker, totals.end);
    totals.add(book.account_at(totals.end, down_beyond, decided_by), book.tally(), decided_by);
  }
  totals.staleness = staleness_;
  totals.bytes = state_.bytes;
  totals.collectives = state_.collectives;
  totals.messages = state_.messages;
  return totals;
}

}  // namespace syncopate
