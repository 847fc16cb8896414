#include "workers/simulated/simulated_cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "workers/interrupt.hpp"

namespace syncopate {

SimulatedCluster::SimulatedCluster(const Options& options) : options_(options) {
  const auto count = static_cast<std::size_t>(options_.workers + (options_.has_server ? 1 : 0));
  stacks_ = std::make_unique<StackPool>(count);
  participants_ = std::vector<Participant>(count);
}

SimulatedCluster::~SimulatedCluster() = default;

RunTotals SimulatedCluster::run(const Program& work, const Program& serve) {
  for (int i = 0; i < options_.workers; ++i) start(Rank{i}, work);
  if (options_.has_server) start(server(), serve);
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
    self(rank).ended = somebody_ended_ = true;
  });
}

void SimulatedCluster::event_loop() {
  while (true) {
    wake_who_waits_in_vain();
    if (events_.empty()) break;
    std::pop_heap(events_.begin(), events_.end());
    Event event = std::move(events_.back());
    events_.pop_back();
    global_ = event.at;
    poll_interrupt();
    switch (event.kind) {
      case Event::Kind::resume:
        if (self(event.rank).wake == event.number) {
          Participant& participant = self(event.rank);
          participant.account[Activity::wait] += std::max(event.at - participant.now, Duration{});
          participant.now = participant.met_at = std::max(participant.now, event.at);
          resume(event.rank);
        }
        break;
      case Event::Kind::deliver:
        deliver(event.rank, std::move(*event.delivery));
        break;
      case Event::Kind::finish_collective:
        end_collective();
        break;
    }
  }
  // When the server has ended the run is over, whatever workers are still lost in.
  const bool over = options_.has_server ? participants_.back().ended
                                        : std::all_of(participants_.begin(), participants_.end(),
                                                      [](const Participant& participant) { return participant.ended; });
  if (!over) throw RunFailure(explain_deadlock());
  for (Participant& participant : participants_) participant.fiber.reset();
}

void SimulatedCluster::poll_interrupt() {
  constexpr int calls_between_polls = 256;
  if (++calls_since_poll_ % calls_between_polls == 0 && interrupted()) throw Interrupted();
}

std::uint64_t SimulatedCluster::schedule(Time at, Event::Kind kind, Rank rank, std::unique_ptr<Delivery> delivery) {
  events_.push_back({at, next_event_, kind, rank, std::move(delivery)});
  std::push_heap(events_.begin(), events_.end());
  return next_event_++;
}

void SimulatedCluster::resume_at(Rank rank, Time at) { self(rank).wake = schedule(at, Event::Kind::resume, rank); }

std::optional<Gradient> SimulatedCluster::compute_gradient(Rank rank, const ModelStatePtr& at,
                                                           const MicroBatch& micro_batch, const Deadline& deadline) {
  Participant& participant = self(rank);
  const MicroBatchEnd end = end_of_micro_batch(participant.now, draw(participant, micro_batch), deadline);
  check_clock(rank, end.at);
  const Duration spent = end.at - participant.now;
  participant.now = end.at;
  poll_interrupt();
  if (spent >= longest_duration) {  // an infinite delay: this worker is never heard of again
    participant.account[Activity::discarded] += spent;
    suspend(participant, {"a micro-batch that never ends", std::source_location::current()});
  }
  if (!end.kept) {
    participant.account[Activity::discarded] += spent;
    return std::nullopt;
  }
  participant.account[Activity::compute] += spent;
  ++participant.computed;
  return Gradient(at, micro_batch, spent);
}

void SimulatedCluster::check_clock(Rank rank, Time now) const {
  if (now == never)
    throw RunFailure(fmt::format("the virtual clock of {} has reached its end, after {:.0f} s (292 years)", name(rank),
                                 to_seconds(never)));
}

Gradient SimulatedCluster::compute_gradients(Rank rank, const ModelStatePtr& at, const MicroBatch& first, int count) {
  drawn_.resize(static_cast<std::size_t>(count));
  options_.compute_time.durations(rank, first.step, static_cast<std::uint32_t>(first.index), drawn_);
  Participant& participant = self(rank);
  Time end = participant.now;
  for (const Duration duration : drawn_) {
    if (duration >= longest_duration) return Cluster::compute_gradients(rank, at, first, count);
    end = later(end, duration);
  }
  check_clock(rank, end);
  const Duration spent = end - participant.now;
  participant.now = end;
  participant.account[Activity::compute] += spent;
  participant.computed += count;
  poll_interrupt();
  return Gradient(at, first, count, spent);
}

// Durations are drawn for several micro-batches of a step at once, which is much cheaper.
Duration SimulatedCluster::draw(Participant& participant, const MicroBatch& micro_batch) {
  constexpr int most_ahead = 64;
  const int first = participant.drawn_first;
  const int count = static_cast<int>(participant.durations.size());
  const bool is_drawn =
      participant.drawn_step == micro_batch.step && micro_batch.index >= first && micro_batch.index < first + count;
  if (!is_drawn) draw_ahead(participant, micro_batch, std::clamp(options_.micro_batches, 1, most_ahead));
  return participant.durations[static_cast<std::size_t>(micro_batch.index - participant.drawn_first)];
}

void SimulatedCluster::draw_ahead(Participant& participant, const MicroBatch& first, int count) {
  participant.durations.resize(static_cast<std::size_t>(count));
  participant.drawn_step = first.step;
  participant.drawn_first = first.index;
  options_.compute_time.durations(first.worker, first.step, static_cast<std::uint32_t>(first.index),
                                  participant.durations);
}

std::string SimulatedCluster::name(Rank rank) const {
  return options_.has_server && rank == server() ? "the server" : fmt::format("worker {}", rank.value);
}

namespace {

// The last two parts of a path: the file's place within the project.
std::string short_path(std::string_view path) {
  const auto file = path.rfind('/');
  const auto folder = file == path.npos || file == 0 ? path.npos : path.rfind('/', file - 1);
  return std::string(folder == path.npos ? path : path.substr(folder + 1));
}

// "0-3, 7": ranks in ascending order as ranges.
std::string as_ranges(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += text.empty() ? "" : ", ";
    text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace

std::string SimulatedCluster::explain_deadlock() const {
  std::map<std::string, std::vector<int>> workers_by_state;
  std::string server_state;
  for (std::size_t i = 0; i < participants_.size(); ++i) {
    const Participant& participant = participants_[i];
    const Place* place = participant.waits_for;
    const std::string state = !place ? "ended"
                                     : fmt::format("waiting in {} ({}:{})", place->operation,
                                                   short_path(place->at.file_name()), place->at.line());
    if (static_cast<int>(i) < options_.workers)
      workers_by_state[state].push_back(static_cast<int>(i));
    else
      server_state = state;
  }
  std::string text = fmt::format("deadlock at {:.6f} s: nobody can go on", to_seconds(global_));
  for (const auto& [state, ranks] : workers_by_state)
    text += fmt::format("\n  worker{} {}: {}", ranks.size() > 1 ? "s" : "", as_ranges(ranks), state);
  if (!server_state.empty()) text += "\n  server: " + server_state;
  return text;
}

// T is the end of the last worker. With a server it is the server's end, or the last time that workers
// met after it; who is beyond has run ahead with a computation that came too late, and is cut off at T.
RunTotals SimulatedCluster::totals() {
  RunTotals totals;
  for (const Participant& participant : participants_) {
    const bool ends_the_run = !options_.has_server || &participant == &participants_.back();
    totals.end = std::max(totals.end, ends_the_run ? participant.now : participant.met_at);
  }
  for (int i = 0; i < options_.workers; ++i) {
    Participant& participant = participants_[static_cast<std::size_t>(i)];
    Account account = participant.account;
    if (options_.has_server) {
      account[Activity::discarded] += account[Activity::compute] - participant.kept_time;
      account[Activity::compute] = participant.kept_time;
      participant.dropped = participant.computed - participant.kept;
    }
    const Duration beyond = participant.now - totals.end;
    if (beyond > Duration{})
      account[Activity::discarded] -= beyond;
    else
      account[Activity::wait] -= beyond;
    totals.accounts.push_back(account);
    totals.kept.push_back(participant.kept);
    totals.dropped.push_back(participant.dropped);
  }
  totals.bytes = bytes_;
  totals.collectives = collectives_;
  totals.messages = messages_;
  return totals;
}

}  // namespace syncopate
