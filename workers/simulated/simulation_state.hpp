// State shared by the parts of the simulated cluster: participants with their fibers, events, and counts. Each
// participant runs ahead in its own virtual time (its book's) and meets the others only in events, ordered by time,
// then by number.
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

// The objects that members refer to must outlive the cluster.
struct SimulatedOptions {
  int workers = 1;
  Servers servers{};
  int micro_batches = 1;  // usual number per step; durations of a step are drawn together
  const ComputeTime& compute_time;
  const NetworkModel& network;
  Training& training;
  RunObserver* observer = nullptr;      // may be null
  RunRecord* record = nullptr;          // null: no record
  const OutagePlan* outages = nullptr;  // null: no outages
  const Pauses* pauses = nullptr;       // null: no pauses; not together with servers or outages
  // True: there are neither collectives nor messages between workers; calls for them fail. Each worker then receives a
  // server's messages in the order of sending, which saves an event per message.
  bool only_servers_send_to_workers = false;
  // With more participants than this, all run on one stack in turn (StackPool). Copying a suspended participant's
  // frames then costs less than loading the page tables of distant stacks. With 16,384 workers an event of asynchronous
  // SGD takes 0.8 times as long as on separate stacks.
  std::size_t most_own_stacks = 8192;
};

// The progress of a transfer over links.
struct Transit {
  TransferTimes progress{};
  Bytes payload{};
  std::size_t stages = 0;   // stages of the route entered so far
  std::int64_t number = 0;  // index among its sender's messages, for costs that vary
  // For how long the message occupies the receiver's incoming link; set once this last stage alone is left.
  std::optional<Duration> last_occupied{};
};

// A message in flight. It takes two cache lines, and a third one on networks with shared links.
struct alignas(64) Delivery : Message {
  union {
    Time sent{};
    Delivery* next;  // next message in the same inbox
  };
  Transit transit{};
};
static_assert(sizeof(Delivery) == 192);

// Whether a participant waits for a message, and from which sender.
enum class Receiving : std::uint8_t { nothing, of_anybody, of_one };

// A worker or server of the simulated cluster. With thousands of workers the cost of a step is fetching their memory,
// so members that are used together share a cache line.
struct alignas(64) SimulatedParticipant {
  std::optional<Fiber> fiber;
  std::optional<Place> waits_for{};  // empty: it is running
  Rank from{};                       // the awaited sender, if `receiving` is of_one
  Receiving receiving = Receiving::nothing;
  bool computing : 1 = false;      // waits until its own micro-batch or outage ends
  bool interruptible : 1 = false;  // a message may end a wait with `computing` earlier
  bool ended : 1 = false;          // its program has ended
  bool left : 1 = false;           // its program has ended, and the events' time has reached that end
  bool lost : 1 = false;           // in a micro-batch that never ends
  std::uint16_t awaits = 0;        // id of the collective whose end it waits for; 0: none
  Time last_arrival{};             // latest arrival of the messages that it sent; it leaves after that
  Inbox<Delivery> inbox;           // messages that have arrived, in (time, number) order
  int in_flight = 0;               // messages sent to it, not yet arrived
  int awaited = 0;                 // number of participants that wait for a message from this one alone
  int leaves_notified = 0;         // servers: number of leaves that it has been notified of
  int started = 0;                 // number of collectives of all workers that it has started
  int collectives_under_way = 0;   // number of collectives started and not finished, of all workers or a group
  Book book;
  std::uint64_t wake = 0;  // number of the event that ends the current wait; 0: no such event

  bool awaits_message_of(Rank sender) const {
    return receiving == Receiving::of_anybody || (receiving == Receiving::of_one && from == sender);
  }
};

struct CollectiveGroup;

struct Event {
  enum class Kind { resume, deliver, finish_collective, arrive_partial, enter_link, enter_links, leave };
  Time at;
  std::uint64_t number;
  union {
    Delivery* delivery;      // owned by the pool
    CollectiveGroup* group;  // of the collective; null: a partial sum
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
  SpanRecorder* const spans;  // null: spans are not recorded

  SimulatedParticipant& operator[](Rank rank) { return participants_[rank]; }
  const SimulatedParticipant& operator[](Rank rank) const { return participants_[rank]; }
  int size() const { return participants_.size(); }
  Ranks everybody() const { return Ranks(size()); }
  Ranks workers() const { return Ranks(options.workers); }
  Ranks servers() const { return Ranks(Rank{options.workers}, options.servers); }
  bool is_server(Rank rank) const { return rank.value >= options.workers; }
  std::string name(Rank rank) const { return options.servers.name_of(rank, options.workers); }

  // The time of the current event. Programs may have run ahead of it.
  Time now() const { return now_; }
  void schedule(Time at, Event::Kind kind, Rank rank, Delivery* delivery = nullptr) {
    events_.push({at, next_event_++, {delivery}, rank, kind});
  }
  void schedule(Time at, Event::Kind kind, CollectiveGroup* group) {
    events_.push({at, next_event_++, {.group = group}, Rank{}, kind});
  }
  bool has_events() const { return !events_.empty() || !timers_.empty(); }
  Event pop_event() {
    if (!timer_is_next()) return events_.pop();
    const Timer timer = timers_.pop();
    return {timer.at, timer.number, {}, timer.rank, Event::Kind::resume};
  }
  // The events and timers that pop_event takes next.
  std::span<const Event> next_events() const { return events_.next(); }
  std::span<const Timer> next_few_timers() const { return timers_.next_few(); }
  bool timer_is_next() {
    if (timers_.empty() || events_.empty()) return events_.empty();
    const Timer& timer = timers_.first();
    const Event& event = events_.first();
    return timer.at != event.at ? timer.at < event.at : timer.number < event.number;
  }
  void advance_to(Time now) { now_ = now; }

  // Suspends a participant until an event resumes it. Call it from the participant's own program.
  static void suspend(SimulatedParticipant& participant, const Place& place) {
    participant.waits_for = place;
    participant.fiber->suspend();
    participant.waits_for.reset();
  }
  // Suspends a participant until time `at`, or until an event resumes it earlier.
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

  // Fails if the clock's range is exceeded.
  void check_clock(Rank rank, Time time) const {
    if (time == never) fail_for_end_of_clock(rank);
  }
  void poll_interrupt() {
    constexpr int calls_between_polls = 256;
    if (++calls_since_poll_ % calls_between_polls == 0 && interrupted()) throw Interrupted();
  }
  // Inline, because it is called for every micro-batch, and few runs record durations.
  void record_duration(Rank rank, const MicroBatch& slot, Duration duration) {
    if (options.record && options.record->durations) add_duration(rank, slot, duration);
  }
  // Destroys the fibers, which unwinds the programs that have not ended.
  void clear() {
    for (SimulatedParticipant& participant : participants_) participant.fiber.reset();
  }

  // For exchanges that overlap the backward pass: each worker's last kept micro-batch.
  struct LastMicroBatch {
    Time end{};
    Duration duration{};
    bool ends_step = false;  // whether it is the last micro-batch planned for the step
  };
  ByRank<LastMicroBatch> last_micro_batches;  // empty without overlap
  // The duration of a step's last micro-batch if the worker has just finished it; otherwise 0.
  Duration last_micro_batch_of(Rank rank) const {
    const LastMicroBatch& last = last_micro_batches[rank];
    return last.ends_step && last.end == participants_[rank].book.now() ? last.duration : Duration{};
  }

  StepRows rows;
  Bytes bytes{};
  std::int64_t kept = 0;  // micro-batches kept in collectives, over all workers
  std::int64_t collectives = 0;
  std::int64_t collectives_begun = 0;  // by all workers; the cost of a collective may depend on its number
  std::int64_t messages = 0;
  int ended_workers = 0;  // workers whose programs have ended
  int leaves = 0;         // workers that have left
  int servers_left = 0;
  Time run_ended_at = never;  // when the last server ended
  // The number of departures that servers are notified of: of workers and, with regional servers, also of servers.
  int leaves_to_notify() const { return leaves + (options.servers.regions > 0 ? servers_left : 0); }
  std::exception_ptr failure;  // exception that a program has thrown
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

// Durations of micro-batches on the simulated cluster. Each is a pure function of its indices, so the next ones may be
// drawn together, which is several times cheaper. Three patterns are recognised: consecutive workers ask for the same
// step, a worker asks for consecutive steps, or a worker asks for single micro-batches.
class DurationPrefetch {
 public:
  // `micro_batches`: usual number per step.
  DurationPrefetch(const ComputeTime& compute_time, int workers, int micro_batches)
      : compute_time_(compute_time), workers_(workers), micro_batches_(micro_batches) {}

  Duration of(const MicroBatch& micro_batch);
  // The total of micro-batches first.index .. first.index + count - 1; longest_duration if any of them never ends.
  Duration of_step(const MicroBatch& first, int count);

  // Call it when a worker is likely to ask for its next step soon.
  void draw_before_asked(Rank worker) {
    if (!own_.empty()) draw_next_steps(worker);
  }
  void prefetch(Rank worker) const {
    if (!own_.empty()) __builtin_prefetch(&own_[worker], 1);
  }

 private:
  // Each worker's total duration of one whole step, for consecutive workers.
  struct SameStep {
    static constexpr int most_workers = 32;
    MicroBatch asked;  // the last request
    int count = 0;
    int first_worker = 0;
    int workers = 0;
    std::array<Duration, most_workers> times;
  };
  // The total durations of the next whole steps of one worker. Takes one cache line.
  struct alignas(64) OwnSteps {
    static constexpr int most_steps = 6;
    Step end{-1};                              // one past the last drawn step
    Step asked{-1};                            // the last request
    std::array<Duration, most_steps> times{};  // durations of steps end - 6 .. end - 1; 0: not drawn
  };
  // Durations of consecutive micro-batches of one step of one worker.
  struct OneByOne {
    Step step{-1};
    int first = 0;
    std::vector<Duration> times;
  };

  [[gnu::noinline]] Duration of_own_step(const MicroBatch& first, int count);
  [[gnu::noinline]] void draw_same_step(const MicroBatch& first, int count);
  void draw_next_steps(Rank worker);
  void draw_own_steps(Rank worker, Step first, int steps);
  void draw_sums(const ComputeTime::Steps& steps, int first, int count, std::span<Duration> times);

  const ComputeTime& compute_time_;
  int workers_;
  int micro_batches_;
  SameStep same_;
  ByRank<OwnSteps> own_;         // empty until first used
  ByRank<OneByOne> one_by_one_;  // empty until first used
  std::vector<Duration> drawn_;  // scratch
};

// Pauses of the simulated cluster (workers/time/compute_time.hpp): a pause follows a micro-batch, and the worker's next
// action waits for the pause's end. The pause counts as computing, as part of that micro-batch.
class SleepTracker {
 public:
  explicit SleepTracker(SimulationState& state)
      : state_(state), pauses_(state.options.pauses ? state.options.workers : 0) {}

  bool none() const { return pauses_.empty(); }
  Duration sleep_after(const MicroBatch& slot) const {
    if (none()) return {};
    return state_.options.pauses->sleep(slot.worker, slot.step, static_cast<std::uint32_t>(slot.index));
  }

  // The following do nothing in runs without pauses.
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
    Time cut_at{};  // latest end of the sleep
    Time trailing_until{};
  };
  void begin_one(Rank worker, const MicroBatch& slot, const Deadline& deadline);
  void end_one(Rank worker);
  void pass(Rank worker, Time until, const char* what);

  SimulationState& state_;
  ByRank<Pause> pauses_;  // empty: no pauses
};

}  // namespace syncopate
