// What the parts of the simulated cluster share: the participants and their fibers, the calendar of what is going to
// happen, and what the run has come to so far.
//
// Each participant runs ahead in its own virtual time (its book's) and meets the others in events alone, which come in
// the order of time, then of their numbers.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "workers/cluster/step_rows.hpp"
#include "workers/process/interrupt.hpp"
#include "workers/process/run_failure.hpp"
#include "workers/simulated/event_queue.hpp"
#include "workers/simulated/simulated_options.hpp"
#include "workers/simulated/simulated_participant.hpp"
#include "workers/simulated/timers.hpp"
#include "workers/units/by_rank.hpp"

namespace syncopate {

struct Assembly;

struct Event {
  enum class Kind {
    resume,
    deliver,
    finish_collective,
    arrive_partial,
    finish_partial,
    enter_link,
    enter_links,
    leave
  };
  Time at;
  std::uint64_t number;
  union {
    Delivery* delivery;  // of the pool
    Assembly* assembly;  // whose collective ends
  };
  Rank rank{};
  Kind kind;
  bool before(const Event& other) const { return at != other.at ? at < other.at : number < other.number; }
  std::uint64_t ticks() const { return static_cast<std::uint64_t>(at.time_since_epoch().count()); }
};

class Stage {
 public:
  explicit Stage(const SimulatedOptions& options);

  const SimulatedOptions options;
  SpanRecorder* const spans;  // of the record; null: none are asked for

  SimulatedParticipant& operator[](Rank rank) { return participants_[rank]; }
  const SimulatedParticipant& operator[](Rank rank) const { return participants_[rank]; }
  int size() const { return participants_.size(); }
  Ranks everybody() const { return Ranks(size()); }
  Ranks workers() const { return Ranks(options.workers); }
  // Those who can send to a worker of a method with servers; of one without: all.
  Ranks servers() const { return Ranks(Rank{options.workers}, options.servers); }
  bool is_server(Rank rank) const { return rank.value >= options.workers; }
  std::string name(Rank rank) const;

  // The time of the event that is handled; programs that run may have run ahead of it.
  Time now() const { return now_; }
  std::uint64_t schedule(Time at, Event::Kind kind, Rank rank, Delivery* delivery = nullptr) {
    events_.push({at, next_event_, {delivery}, rank, kind});
    return next_event_++;
  }
  void schedule_end(Time at, Event::Kind kind, Assembly* assembly) {
    events_.push({at, next_event_++, {.assembly = assembly}, Rank{}, kind});
  }
  bool has_events() const { return !events_.empty() || !timers_.empty(); }
  Event pop_event() {
    if (!timer_is_next()) return events_.pop();
    const Timer timer = timers_.pop();
    return {timer.at, timer.number, {}, timer.rank, Event::Kind::resume};
  }
  // The two queues that pop_event takes from.
  std::span<const Event> next_events() const { return events_.next(); }
  std::span<const Timer> next_few_timers() const { return timers_.next_few(); }
  bool timer_is_next() {
    if (timers_.empty() || events_.empty()) return events_.empty();
    const Timer& timer = timers_.first();
    const Event& event = events_.first();
    return timer.at != event.at ? timer.at < event.at : timer.number < event.number;
  }
  void advance_to(Time now) { now_ = now; }

  // From within a participant's program: waits until somebody resumes it.
  static void suspend(SimulatedParticipant& participant, const Place& place) {
    participant.waits_for = place;
    participant.fiber->suspend();
    participant.waits_for.reset();
  }
  // The same; goes on at `at`, unless something else ends the wait before.
  void suspend_until(Rank rank, Time at, const Place& place) {
    SimulatedParticipant& participant = participants_[rank];
    participant.wake = next_event_++;
    timers_.set({at, participant.wake, rank});
    suspend(participant, place);
    participant.wake = 0;
  }
  void resume(Rank rank) {
    const Training::AskedBy asked(options.training, rank);
    participants_[rank].fiber->resume();
    if (failure) std::rethrow_exception(failure);
  }

  // Fails where the clock's range is used up.
  void check_clock(Rank rank, Time time) const {
    if (time == never) fail_for_end_of_clock(rank);
  }
  void poll_interrupt() {
    constexpr int calls_between_polls = 256;
    if (++calls_since_poll_ % calls_between_polls == 0 && interrupted()) throw Interrupted();
  }
  // How long a micro-batch has taken, where that is recorded. Inlined, it costs a branch where it is not.
  void record_duration(Rank rank, const MicroBatch& slot, Duration duration) {
    if (options.record && options.record->durations) add_duration(rank, slot, duration);
  }
  // Destroys the fibers, which unwinds the programs that have not ended.
  void clear();

  // Where exchanges overlap the backward pass: of each worker, its last micro-batch that was kept.
  struct LastMicroBatch {
    Time end{};
    Duration duration{};
    bool ends_step = false;  // it was the last one planned
  };
  ByRank<LastMicroBatch> last_micro_batches;  // else empty
  // How long the last micro-batch of a step took that the worker has come out of just now; 0: it has not.
  Duration last_micro_batch_of(Rank rank) const {
    const LastMicroBatch& last = last_micro_batches[rank];
    return last.ends_step && last.end == participants_[rank].book.now() ? last.duration : Duration{};
  }

  StepRows rows;
  Bytes bytes{};
  std::int64_t kept = 0;  // in collectives, over all workers
  std::int64_t collectives = 0;
  std::int64_t messages = 0;
  int ended_workers = 0;  // whose programs have ended
  int leaves = 0;         // workers that have left
  int servers_left = 0;
  Time run_ended_at = never;  // by its servers, when the last of them has ended
  // Those that servers are told of: where servers have servers, of them too.
  int leaves_to_tell() const { return leaves + (options.servers.regions > 0 ? servers_left : 0); }
  std::exception_ptr failure;  // of a program
  StackPool stacks;

 private:
  [[noreturn]] void fail_for_end_of_clock(Rank rank) const;
  void add_duration(Rank rank, const MicroBatch& slot, Duration duration);

  Time now_{};
  EventQueue<Event> events_;
  Timers timers_;
  std::uint64_t next_event_ = 1;
  std::int64_t calls_since_poll_ = 0;
  ByRank<SimulatedParticipant> participants_;  // destroyed before the stacks of its fibers
};

}  // namespace syncopate
