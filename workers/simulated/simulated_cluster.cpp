#include "workers/simulated/simulated_cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "workers/cluster/deadlock.hpp"
#include "workers/process/interrupt.hpp"

namespace syncopate {

SimulatedCluster::SimulatedCluster(const Options& options)
    : options_(options),
      rows_(options.observer),
      network_is_plain_(!options.network.has_shared_links() && !options.network.varies()) {
  const auto count = static_cast<std::size_t>(options_.workers + options_.servers);
  stacks_ = std::make_unique<StackPool>(count);
  participants_ = std::vector<Participant>(count);
  if (options_.record && options_.record->spans) spans_ = &*options_.record->spans;
  for (std::size_t i = 0; i < count; ++i) participants_[i].book = Book(Rank{static_cast<int>(i)}, start_time, spans_);
  if (!network_is_plain_) senders_.resize(count);
  all_.members = {Rank{0}, options_.workers};
  one_by_one_ = options_.record || options_.outages || options_.pauses;
  if (options_.pauses) pauses_.resize(static_cast<std::size_t>(options_.workers));
  for (int i = 0; options_.outages && i < options_.workers; ++i)
    outages_.push_back({.outages = options_.outages->of(Rank{i}),
                        .may_lose_state = options_.outages->loses_state(Rank{i}),
                        .has_lost_state = false,
                        .met = {}});
}

SimulatedCluster::~SimulatedCluster() = default;

RunTotals SimulatedCluster::run(const Program& work, const Program& serve) {
  for (int i = 0; i < options_.workers; ++i) start(Rank{i}, work);
  for (int shard = 0; shard < options_.servers; ++shard) start(server(shard), serve);
  try {
    for (std::size_t i = 0; i < participants_.size(); ++i) resume(Rank{static_cast<int>(i)});
    event_loop();
  } catch (...) {
    for (Participant& participant : participants_) participant.fiber.reset();  // unwinds the programs
    throw;
  }
  return totals();
}

void SimulatedCluster::start(Rank rank, const Program& program) {
  self(rank).fiber.emplace(*stacks_, index(rank), [this, rank, program] {
    try {
      program(rank);
    } catch (const boost::context::detail::forced_unwind&) {
      throw;  // the cluster is being destroyed
    } catch (...) {
      failure_ = std::current_exception();
    }
    self(rank).ended = true;
    if (!is_server(rank)) {
      ++ended_workers_;
      ++ended_after_row_[self(rank).last_row];
      close_rows();
    }
    schedule_leave(rank);
  });
}

// After the last of its messages has arrived; while some are on shared links, that is not known.
void SimulatedCluster::schedule_leave(Rank rank) {
  const Participant& participant = self(rank);
  if (network_is_plain_ || senders_[index(rank)].on_links == 0)
    schedule(std::max(participant.book.now(), participant.last_arrival), Event::Kind::leave, rank);
}

void SimulatedCluster::event_loop() {
  bool is_end_of_clock = false;
  while (!events_.empty()) {
    const Event event = events_.pop();
    is_end_of_clock = event.at == never;
    if (is_end_of_clock) break;
    fetch_what_comes_next();
    global_ = event.at;
    poll_interrupt();
    handle(event);
  }
  // When the servers have ended the run is over, whatever workers are still lost in. Without a server it
  // is over when all have ended who are not lost.
  const auto first = participants_.begin() + (options_.servers > 0 ? options_.workers : 0);
  const bool over = std::all_of(first, participants_.end(), [](const Participant& p) { return p.ended || p.lost; }) &&
                    std::any_of(first, participants_.end(), [](const Participant& p) { return p.ended; });
  if (!over) throw RunFailure(is_end_of_clock ? explain_end_of_clock("the cluster") : explain_deadlock());
  for (Participant& participant : participants_) participant.fiber.reset();
}

// With thousands of workers nothing of the next one is in a near cache. While the present event is handled, the
// stack of the next event's fiber comes, and what has to be looked at to find that of the one after it.
void SimulatedCluster::fetch_what_comes_next() const {
  const auto fetch = [](const void* from, int lines) {
    for (int line = 0; line < lines; ++line) __builtin_prefetch(static_cast<const char*>(from) + 64 * line, 1);
  };
  const auto next = events_.next_few();
  for (std::size_t i = 1; i < next.size(); ++i) {
    fetch(&participants_[index(next[i].rank)], 2);
    if (next[i].delivery) fetch(next[i].delivery, 2);
  }
  if (next.empty() || next[0].kind != Event::Kind::deliver) return;
  const Rank receiver = next[0].rank;
  if (is_server(receiver)) {
    fetch(&participants_[index(next[0].delivery->from)].book.tally, 1);  // where it is booked
    return;
  }
  if (const auto& fiber = participants_[index(receiver)].fiber) fiber->prefetch();
  if (!steps_ahead_.empty()) fetch(&steps_ahead_[index(receiver)], 1);
}

void SimulatedCluster::handle(const Event& event) {
  switch (event.kind) {
    case Event::Kind::resume: {
      Participant& participant = self(event.rank);
      if (participant.wake != event.number) break;
      if (!participant.computing) {  // who computes books its time itself
        participant.book.pass(Activity::wait, event.at, {participant.waits_for->operation});
        participant.book.meet();
      }
      resume(event.rank);
      break;
    }
    case Event::Kind::deliver:
      deliver(event.rank, event.delivery);
      break;
    case Event::Kind::finish_collective:
      end_collective(*event.assembly);
      break;
    case Event::Kind::arrive_partial:
      resume(event.rank);
      break;
    case Event::Kind::finish_partial:
      end_partial_round();
      break;
    case Event::Kind::enter_link:
      enter_link(event.number);
      break;
    case Event::Kind::leave:
      leave(event.rank);
      break;
  }
}

void SimulatedCluster::leave(Rank rank) {
  self(rank).left = true;
  if (is_server(rank)) {
    ++servers_left_;
  } else {
    ++leaves_;
    fail_if_awaited(all_, rank);
    for (auto& [members, assembly] : groups_) fail_if_awaited(assembly, rank);
    if (has_partial_rounds_) start_partial_round_if_due();
  }
  wake_who_waits_in_vain(rank);
}

int SimulatedCluster::workers_left(Rank rank) {
  self(rank).leaves_told = leaves_;
  return options_.workers - leaves_;
}

void SimulatedCluster::poll_interrupt() {
  constexpr int calls_between_polls = 256;
  if (++calls_since_poll_ % calls_between_polls == 0 && interrupted()) throw Interrupted();
}

std::uint64_t SimulatedCluster::schedule(Time at, Event::Kind kind, Rank rank, Delivery* delivery) {
  events_.push({at, next_event_, {delivery}, rank, kind});
  return next_event_++;
}

void SimulatedCluster::schedule_end(Time at, Event::Kind kind, Assembly* assembly) {
  events_.push({at, next_event_++, {.assembly = assembly}, Rank{}, kind});
}

std::optional<Gradient> SimulatedCluster::compute_gradient(Rank rank, const ModelStatePtr& at, const MicroBatch& slot,
                                                           const MicroBatch& samples, const Deadline& deadline) {
  if (!outages_.empty())
    if (const auto passage = meet_outages(rank, slot, deadline)) return pass_through(rank, at, slot, samples, *passage);
  if (deadline.at_message) return compute_until_message(rank, at, slot, samples);
  if (!pauses_.empty()) end_pause(rank);
  Participant& participant = self(rank);
  Book& book = participant.book;
  const MicroBatchEnd end = end_of_micro_batch(book.now(), draw(participant, slot), deadline);
  check_clock(rank, end.at);
  const Duration spent = end.at - book.now();
  const bool ends = spent < longest_duration;
  book.pass(end.kept && ends ? Activity::compute : Activity::discarded, end.at, label_of(slot));
  poll_interrupt();
  if (!ends) {  // an infinite delay: this worker is never heard of again
    participant.lost = true;
    suspend(participant, {"a micro-batch that never ends", SourceLine::current()});
  }
  if (!end.kept) return std::nullopt;
  ++book.tally.computed;
  record_duration(rank, slot, spent);
  if (!pauses_.empty()) begin_pause(rank, slot, deadline);
  return Gradient(at, samples, spent);
}

std::optional<Gradient> SimulatedCluster::compute_until_message(Rank rank, const ModelStatePtr& at,
                                                                const MicroBatch& slot, const MicroBatch& samples) {
  Participant& participant = self(rank);
  Book& book = participant.book;
  const Duration duration = draw(participant, slot);
  if (participant.inbox.empty()) {
    participant.computing = participant.interruptible = true;
    participant.lost = duration >= longest_duration;
    const Place place{"a micro-batch", SourceLine::current()};
    if (participant.lost)
      suspend(participant, place);
    else
      suspend_until(rank, later(book.now(), duration), place);
    participant.computing = participant.interruptible = participant.lost = false;
  }
  if (!participant.inbox.empty()) {
    book.pass(Activity::discarded, global_, label_of(slot));
    ++book.tally.cancelled;
    return std::nullopt;
  }
  check_clock(rank, later(book.now(), duration));
  book.pass(Activity::compute, later(book.now(), duration), label_of(slot));
  ++book.tally.computed;
  record_duration(rank, slot, duration);
  return Gradient(at, samples, duration);
}

void SimulatedCluster::check_clock(Rank rank, Time now) const {
  if (now == never) throw RunFailure(explain_end_of_clock(name(rank)));
}

Gradient SimulatedCluster::compute_gradients(Rank rank, const ModelStatePtr& at, const MicroBatch& first, int count) {
  if (one_by_one_) return Cluster::compute_gradients(rank, at, first, count);
  const Duration spent = step_time(first, count);
  if (spent >= longest_duration) return Cluster::compute_gradients(rank, at, first, count);
  Book& book = self(rank).book;
  const Time end = later(book.now(), spent);
  check_clock(rank, end);
  book.pass(Activity::compute, end, {});
  book.tally.computed += count;
  poll_interrupt();
  return Gradient(at, first, count, spent);
}

std::string SimulatedCluster::name(Rank rank) const {
  if (!is_server(rank)) return fmt::format("worker {}", rank.value);
  return options_.servers == 1 ? "the server" : fmt::format("server {}", rank.value - options_.workers);
}

std::string SimulatedCluster::explain_deadlock() const {
  Deadlock deadlock{.at = global_};
  for (std::size_t i = 0; i < participants_.size(); ++i) {
    const Rank rank{static_cast<int>(i)};
    const std::string state = what_it_waits_for(participants_[i].waits_for);
    if (is_server(rank))
      deadlock.servers.emplace_back(options_.servers == 1 ? "server" : name(rank), state);
    else
      deadlock.workers_by_state[state].push_back(rank.value);
    deadlock.after_loss |= participants_[i].lost;
  }
  return explain(deadlock);
}

// T is the end of the last worker. With servers it is their end, or the last time that workers met after
// it, and with partial all-reduces that last time alone; who is beyond has run ahead with a computation that
// came too late, and is cut off at T.
RunTotals SimulatedCluster::totals() {
  RunTotals totals;
  const bool with_servers = options_.servers > 0;
  for (std::size_t i = 0; i < participants_.size(); ++i) {
    const Participant& participant = participants_[i];
    const bool decides = with_servers ? static_cast<int>(i) >= options_.workers : !has_partial_rounds_;
    totals.end =
        std::max(totals.end, decides && !participant.lost ? participant.book.now() : participant.book.met_at());
  }
  for (int i = 0; i < options_.workers; ++i) {
    Participant& participant = participants_[static_cast<std::size_t>(i)];
    Book& book = participant.book;
    book.lose(participant.late.compute_time());  // nobody took it any more
    book.tally.dropped += participant.late_part.planned;
    Account account = book.account();
    if (with_servers) {
      account[Activity::discarded] += account[Activity::compute] - book.tally.kept_time;
      account[Activity::compute] = book.tally.kept_time;
      book.tally.dropped = book.tally.dropped_by_servers();
    }
    const Duration beyond = book.now() - totals.end;
    const Duration down_beyond = outages_.empty() ? Duration{} : outages_[index(Rank{i})].down_beyond(totals.end);
    account[Activity::down] -= down_beyond;
    if (beyond > Duration{}) {
      const Duration worked = beyond - down_beyond;
      const Duration lost = std::min(worked, account[Activity::discarded]);
      account[Activity::discarded] -= lost;
      account[Activity::compute] -= worked - lost;
    } else {
      account[Activity::wait] -= beyond;
    }
    totals.accounts.push_back(account);
    totals.kept.push_back(book.tally.kept);
    totals.dropped.push_back(book.tally.dropped);
  }
  totals.staleness = staleness_;
  totals.bytes = bytes_;
  totals.collectives = collectives_;
  totals.messages = messages_;
  return totals;
}

}  // namespace syncopate
