#include "workers/simulated/simulated_cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "workers/cluster/deadlock.hpp"

namespace syncopate {

SimulatedCluster::SimulatedCluster(const SimulatedOptions& options)
    : stage_(options),
      durations_(options.compute_time, options.workers, options.micro_batches),
      pauses_(stage_),
      traffic_(stage_),
      micro_batches_(stage_, durations_, pauses_),
      gatherings_(stage_, traffic_, pauses_),
      partial_sums_(stage_, traffic_, pauses_),
      mail_(stage_, traffic_, durations_),
      open_rows_(stage_) {
  if (servers().regions > 0) served_left_ = ByRank<int>(stage_.size());
}

// The programs that have not ended hold what the parts have given them.
SimulatedCluster::~SimulatedCluster() { stage_.clear(); }

RunTotals SimulatedCluster::run(const Program& work, const Program& serve) {
  for (const Rank worker : stage_.workers()) begin(worker, work);
  for (const Rank server : stage_.servers()) begin(server, serve);
  try {
    for (const Rank rank : stage_.everybody()) stage_.resume(rank);
    event_loop();
  } catch (...) {
    stage_.clear();
    throw;
  }
  return totals();
}

void SimulatedCluster::begin(Rank rank, const Program& program) {
  stage_[rank].fiber.emplace(stage_.stacks, static_cast<std::size_t>(rank.value), [this, rank, program] {
    try {
      program(rank);
    } catch (const boost::context::detail::forced_unwind&) {
      throw;  // the cluster is being destroyed
    } catch (...) {
      stage_.failure = std::current_exception();
    }
    stage_[rank].ended = true;
    if (!is_server(rank)) {
      ++stage_.ended_workers;
      open_rows_.leave(rank);
    } else {
      end_run_with_servers();
    }
    traffic_.schedule_leave(rank);
  });
}

// If all of them have ended.
void SimulatedCluster::end_run_with_servers() {
  Time end = start_time;
  for (const Rank server : stage_.servers())
    end = stage_[server].ended ? std::max(end, stage_[server].book.now()) : never;
  stage_.run_ended_at = end;
}

void SimulatedCluster::event_loop() {
  bool is_end_of_clock = false;
  while (stage_.has_events()) {
    const Event event = stage_.pop_event();
    is_end_of_clock = event.at == never;
    if (is_end_of_clock) break;
    fetch_what_comes_next();
    stage_.advance_to(event.at);
    stage_.poll_interrupt();
    handle(event);
  }
  // When the servers have ended the run is over, whatever workers are still lost in. Without a server it
  // is over when all have ended who are not lost.
  bool has_ended = true, has_anybody_ended = false;
  for (const Rank rank : servers() > 0 ? stage_.servers() : stage_.workers()) {
    has_ended &= stage_[rank].ended || stage_[rank].lost;
    has_anybody_ended |= stage_[rank].ended;
  }
  if (!has_ended || !has_anybody_ended)
    throw RunFailure(is_end_of_clock ? explain_end_of_clock("the cluster") : explain_deadlock());
  stage_.clear();
}

// With thousands of workers nothing of the next one is in a near cache. While the present event is handled, the
// stack of the fiber of an event soon after it comes, and what has to be looked at to find those of later ones.
// In one piece: a function that does nothing but fetch has no effect for the compiler, which leaves out calls of it.
void SimulatedCluster::fetch_what_comes_next() const {
  constexpr std::size_t soon = 2, later = 4;  // so many events ahead
  const auto fetch = [](const void* from, int lines) {
    for (int line = 0; line < lines; ++line) __builtin_prefetch(static_cast<const char*>(from) + 64 * line, 1);
  };
  const auto events = stage_.next_events();
  if (events.size() >= later) {
    const Event& event = events[events.size() - later];
    fetch(&stage_[event.rank], 2);
    if (event.delivery) fetch(event.delivery, 2);
  }
  const auto timers = stage_.next_few_timers();
  for (const Timer& timer : timers) fetch(&stage_[timer.rank], 2);
  const bool is_timer = !timers.empty() && (events.empty() || timers.front().at < events.back().at);
  if (!is_timer && events.size() < soon) return;
  const Event* const event = is_timer ? nullptr : &events[events.size() - soon];
  if (event && event->kind != Event::Kind::deliver) return;
  const Rank receiver = event ? event->rank : timers.front().rank;
  if (is_server(receiver)) {
    if (event) fetch(&stage_[event->delivery->from].book.tally(), 1);  // where it is booked
    return;
  }
  if (const auto& fiber = stage_[receiver].fiber) fiber->prefetch();
  durations_.prefetch(receiver);
}

void SimulatedCluster::handle(const Event& event) {
  switch (event.kind) {
    case Event::Kind::resume: {
      SimulatedParticipant& participant = stage_[event.rank];
      if (participant.wake != event.number) return;  // something else has ended that wait
      if (participant.computing)                     // and books its time itself
        stage_.resume(event.rank);
      else
        mail_.give_up(event.rank);
      break;
    }
    case Event::Kind::deliver:
      mail_.deliver(event.rank, event.delivery);
      break;
    case Event::Kind::finish_collective:
      gatherings_.end_collective(*event.assembly);
      break;
    case Event::Kind::arrive_partial:
      stage_.resume(event.rank);
      break;
    case Event::Kind::finish_partial:
      partial_sums_.end_sum();
      break;
    case Event::Kind::enter_link:
      traffic_.enter_link(event.rank, event.delivery);
      break;
    case Event::Kind::enter_links:
      traffic_.enter_links(event.assembly);
      break;
    case Event::Kind::leave:
      leave(event.rank);
      break;
  }
  ++events_;
}

void SimulatedCluster::leave(Rank rank) {
  stage_[rank].left = true;
  if (!served_left_.empty()) ++served_left_[servers().server_of(rank, workers())];
  if (is_server(rank)) {
    ++stage_.servers_left;
  } else {
    ++stage_.leaves;
    gatherings_.tell_of_leave(rank);
    partial_sums_.tell_of_leave();
  }
  mail_.tell_of_leave(rank);
}

int SimulatedCluster::workers_left(Rank rank) {
  stage_[rank].leaves_told = stage_.leaves_to_tell();
  if (served_left_.empty()) return workers() - stage_.leaves;
  return servers().number_served_by(rank, workers()) - served_left_[rank];
}

void SimulatedCluster::report_steps(Rank rank, const Contribution& contribution) {
  open_rows_.contribute(rank, contribution);
}

void SimulatedCluster::keep(Rank, const Work& work, Step staleness) {
  const auto steps = static_cast<std::size_t>(staleness.value());
  if (staleness_.size() <= steps) staleness_.resize(steps + 1);
  ++staleness_[steps];
  stage_[work.worker].book.keep(work);
}

void SimulatedCluster::discard(Rank, const Work& work) { stage_[work.worker].book.lose(work.time); }

std::string SimulatedCluster::explain_deadlock() const {
  Deadlock deadlock{.at = stage_.now()};
  for (const Rank rank : stage_.everybody()) {
    const SimulatedParticipant& participant = stage_[rank];
    const std::string state = what_it_waits_for(participant.waits_for ? &*participant.waits_for : nullptr);
    if (is_server(rank))
      deadlock.servers.emplace_back(servers() == 1 ? "server" : stage_.name(rank), state);
    else
      deadlock.workers_by_state[state].push_back(rank.value);
    deadlock.after_loss |= participant.lost;
  }
  return explain(deadlock);
}

// T is the end of the last worker. With servers it is their end, or the last collective of workers after it; what they
// have sent may still be under way. With partial all-reduces it is the last time that workers met. Who is beyond has run
// ahead with a computation that came too late, and is cut off at T.
RunTotals SimulatedCluster::totals() {
  RunTotals totals;
  const bool with_servers = servers() > 0;
  const DecidedBy decided_by = with_servers ? DecidedBy::servers : DecidedBy::workers;
  for (const Rank rank : stage_.everybody()) {
    const SimulatedParticipant& participant = stage_[rank];
    const bool decides = with_servers ? is_server(rank) : !partial_sums_.are_used();
    totals.end =
        std::max(totals.end, decides && !participant.lost ? participant.book.now() : participant.book.met_at());
  }
  for (const Rank worker : stage_.workers()) {
    Book& book = stage_[worker].book;
    const PartialSums::Late& late = partial_sums_.left_over(worker);
    book.lose(late.gradient.compute_time());
    book.drop(late.part.planned);
    const Duration down_beyond = micro_batches_.down_beyond(worker, totals.end);
    totals.add(book.account_at(totals.end, down_beyond, decided_by), book.tally(), decided_by);
  }
  totals.staleness = staleness_;
  totals.bytes = stage_.bytes;
  totals.collectives = stage_.collectives;
  totals.messages = stage_.messages;
  return totals;
}

}  // namespace syncopate
