// The state that the parts of the simulated cluster share: participants with their fibers, events, and counts.
//
// Each participant runs ahead in its own virtual time (its book's) and meets the others in events alone, which come in
// the order of time, then of their numbers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "workers/base/process.hpp"
#include "workers/base/units.hpp"
#include "workers/cluster/accounting.hpp"
#include "workers/cluster/calls.hpp"
#include "workers/simulated/event_queue.hpp"
#include "workers/simulated/fiber.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/network.hpp"
#include "workers/time/outages.hpp"
#include "workers/training/objective.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

// The references outlive the cluster.
struct SimulatedOptions {
  int workers = 1;
  Servers servers{};
  int micro_batches = 1;  // usual number per step, whose durations are drawn at once
  const ComputeTime& compute_time;
  const NetworkModel& network;
  Training& training;
  RunObserver* observer = nullptr;      // may be null
  RunRecord* record = nullptr;          // null: nothing is recorded
  const OutagePlan* outages = nullptr;  // null: there are none
  const Pauses* pauses = nullptr;       // null: there are none; not together with servers or outages
  // Promises that there are neither collectives nor messages between workers; they are refused then. Messages of one
  // server come to a worker in the order of sending, which saves an event for each.
  bool only_servers_send_to_workers = false;
  // More participants run on one stack in turn (StackPool): copying a suspended one's part costs less than the page
  // tables of stacks that lie far apart. An event of asynchronous SGD among 16,384 takes 0.8 times as long.
  std::size_t most_own_stacks = 8192;
};

// The progress of a transfer over links.
struct Transit {
  TransferTimes progress{};
  Bytes payload{};
  std::size_t stages = 0;                   // entered so far
  std::int64_t number = 0;                  // among its sender's messages, where costs vary
  std::optional<Duration> last_occupied{};  // by the last stage, the receiver's way in, where that alone is left
};

// A message on its way. Two cache lines, and a third one where links are shared.
struct alignas(64) Delivery : Message {
  union {
    Time sent{};
    Delivery* next;  // once it is in an inbox
  };
  Transit transit{};
};
static_assert(sizeof(Delivery) == 192);

// Whether a participant waits for a message, and whose.
enum class Receiving : std::uint8_t { nothing, of_anybody, of_one };

// A worker or server of the simulated cluster. With thousands of workers the cost of a step is that of fetching their
// memory, so members that are touched together stand in one cache line.
struct alignas(64) SimulatedParticipant {
  std::optional<Fiber> fiber;
  std::optional<Place> waits_for{};  // none: it runs
  Rank from{};                       // of_one: of whom
  Receiving receiving = Receiving::nothing;
  bool computing : 1 = false;      // waits for its own end of a micro-batch, or of an outage,
  bool interruptible : 1 = false;  // or for a message that comes before
  bool ended : 1 = false;          // its program has
  bool left : 1 = false;           // and the clock has come to that
  bool lost : 1 = false;           // in a micro-batch that never ends
  std::uint16_t awaits = 0;        // the collective whose end it waits for (PendingCollective::id); 0: none
  Time last_arrival{};             // of its messages: it leaves after that
  Inbox<Delivery> inbox;           // in (time, number) order
  int in_flight = 0;               // messages sent to it, not yet arrived
  int awaited = 0;                 // others that wait for a message from here alone
  int leaves_notified = 0;         // a server: of those that have left
  int started = 0;                 // collectives of all workers
  int collectives_under_way = 0;   // of any members, that it has started and not finished
  Book book;
  std::uint64_t wake = 0;  // number of the event that ends its present wait; 0: none

  bool awaits_message_of(Rank sender) const {
    return receiving == Receiving::of_anybody || (receiving == Receiving::of_one && from == sender);
  }
};

struct CollectiveGroup;

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
    Delivery* delivery;      // of the pool
    CollectiveGroup* group;  // whose collective ends
  };
  Rank rank{};
  Kind kind;
  bool before(const Event& other) const { return at != other.at ? at < other.at : number < other.number; }
  std::uint64_t ticks() const { return static_cast<std::uint64_t>(at.time_since_epoch().count()); }
};

class SimulationState {
 public:
  explicit SimulationState(const SimulatedOptions& options);

  const SimulatedOptions options;
  SpanRecorder* const spans;  // of the record; null: none are asked for

  SimulatedParticipant& operator[](Rank rank) { return participants_[rank]; }
  const SimulatedParticipant& operator[](Rank rank) const { return participants_[rank]; }
  int size() const { return participants_.size(); }
  Ranks everybody() const { return Ranks(size()); }
  Ranks workers() const { return Ranks(options.workers); }
  Ranks servers() const { return Ranks(Rank{options.workers}, options.servers); }
  bool is_server(Rank rank) const { return rank.value >= options.workers; }
  std::string name(Rank rank) const { return options.servers.name_of(rank, options.workers); }

  // The time of the present event; programs may have run ahead of it.
  Time now() const { return now_; }
  std::uint64_t schedule(Time at, Event::Kind kind, Rank rank, Delivery* delivery = nullptr) {
    events_.push({at, next_event_, {delivery}, rank, kind});
    return next_event_++;
  }
  void schedule_end(Time at, Event::Kind kind, CollectiveGroup* group) {
    events_.push({at, next_event_++, {.group = group}, Rank{}, kind});
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

  // Called from within a participant's program: waits until somebody resumes it.
  static void suspend(SimulatedParticipant& participant, const Place& place) {
    participant.waits_for = place;
    participant.fiber->suspend();
    participant.waits_for.reset();
  }
  // The same, until `at` at the latest.
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
  // Inlined, it costs a branch where nothing is recorded.
  void record_duration(Rank rank, const MicroBatch& slot, Duration duration) {
    if (options.record && options.record->durations) add_duration(rank, slot, duration);
  }
  // Destroys the fibers, which unwinds programs that have not ended.
  void clear() {
    for (SimulatedParticipant& participant : participants_) participant.fiber.reset();
  }

  // Where exchanges overlap the backward pass: each worker's last micro-batch that was kept.
  struct LastMicroBatch {
    Time end{};
    Duration duration{};
    bool ends_step = false;  // it was the last one planned
  };
  ByRank<LastMicroBatch> last_micro_batches;  // else empty
  // How long the last micro-batch of a step took, if the worker has come out of it just now; else 0.
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
  // Servers are notified of these; with regional servers, of servers too.
  int leaves_to_notify() const { return leaves + (options.servers.regions > 0 ? servers_left : 0); }
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

// Durations of micro-batches on the simulated cluster. Each is a pure function of its place, so that those needed next
// may be drawn together, which is several times cheaper. It knows three patterns: workers that ask one after another
// for the same whole step, a worker that asks for one whole step after another, or for micro-batches one by one.
class DurationPrefetch {
 public:
  // `micro_batches`: usual number per step.
  DurationPrefetch(const ComputeTime& compute_time, int workers, int micro_batches)
      : compute_time_(compute_time), workers_(workers), micro_batches_(micro_batches) {}

  Duration of(const MicroBatch& micro_batch);
  // The sum over micro-batches first.index .. first.index + count - 1; longest_duration if one of them never ends.
  Duration of_step(const MicroBatch& first, int count);

  // Call it where a worker is likely to ask for its next step soon.
  void draw_before_asked(Rank worker) {
    if (!own_.empty()) draw_next_steps(worker);
  }
  void prefetch(Rank worker) const {
    if (!own_.empty()) __builtin_prefetch(&own_[worker], 1);
  }

 private:
  // A whole step of some workers in a row.
  struct SameStep {
    static constexpr int most_workers = 32;
    MicroBatch asked;  // asked for last
    int count = 0;
    int first_worker = 0;
    int workers = 0;
    std::array<Duration, most_workers> times;
  };
  // The next whole steps of one worker. One cache line.
  struct alignas(64) OwnSteps {
    static constexpr int most_steps = 6;
    Step end{-1};                              // of the drawn ones
    Step asked{-1};                            // asked for last
    std::array<Duration, most_steps> times{};  // of steps end - 6 .. end - 1; 0: not drawn
  };
  // Micro-batches of one step of one worker.
  struct OneByOne {
    Step step{-1};
    int first = 0;
    std::vector<Duration> times;
  };

  [[gnu::noinline]] Duration of_own_step(const MicroBatch& first, int count);
  [[gnu::noinline]] void draw_same_step(const MicroBatch& first, int count);
  void draw_next_steps(Rank worker);
  void draw_own_steps(Rank worker, Step first, int steps);
  void draw_one_by_one(OneByOne& ahead, const MicroBatch& first, int count);
  void draw_sums(const ComputeTime::Steps& steps, int first, int count, std::span<Duration> times);

  const ComputeTime& compute_time_;
  int workers_;
  int micro_batches_;
  SameStep same_;
  ByRank<OwnSteps> own_;         // empty until somebody asks
  ByRank<OneByOne> one_by_one_;  // empty until somebody asks
  std::vector<Duration> drawn_;  // scratch
};

// Pauses of the simulated cluster (workers/time/compute_time.hpp): a micro-batch leaves one behind, and the worker's
// next action waits for it. The time counts as computing: it belongs to the micro-batch before.
class SleepTracker {
 public:
  explicit SleepTracker(SimulationState& state)
      : state_(state), pauses_(state.options.pauses ? state.options.workers : 0) {}

  bool none() const { return pauses_.empty(); }
  Duration sleep_after(const MicroBatch& slot) const {
    if (none()) return {};
    return state_.options.pauses->sleep(slot.worker, slot.step, static_cast<std::uint32_t>(slot.index));
  }

  // These do nothing where there are no pauses.
  void begin(Rank worker, const MicroBatch& slot, const Deadline& deadline) {
    if (!none()) begin_one(worker, slot, deadline);
  }
  void end(Rank worker) {
    if (!none()) end_one(worker);
  }
  void end_trailing_work(Rank worker) {
    if (!none()) pass(worker, pauses_[worker].trailing_until, "trailing work");
  }

 private:
  struct Pause {
    Duration sleep{};
    Time cut_at{};  // the end at the latest
    Time trailing_until{};
  };
  void begin_one(Rank worker, const MicroBatch& slot, const Deadline& deadline);
  void end_one(Rank worker);
  void pass(Rank worker, Time until, const char* what);

  SimulationState& state_;
  ByRank<Pause> pauses_;  // empty: there are none
};

}  // namespace syncopate
