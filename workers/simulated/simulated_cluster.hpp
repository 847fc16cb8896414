// All workers in one process on a virtual clock. Each participant is a fiber that runs ahead in its
// own virtual time and meets the others only in collectives and messages; events are ordered by
// time, then by number. Tensor arithmetic is only promised here, so virtual time never depends on
// this machine's speed.
#pragma once

#include <array>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "workers/cluster/book.hpp"
#include "workers/cluster/cluster.hpp"
#include "workers/cluster/run_record.hpp"
#include "workers/cluster/step_rows.hpp"
#include "workers/delays/compute_time.hpp"
#include "workers/delays/outages.hpp"
#include "workers/delays/pauses.hpp"
#include "workers/network/network.hpp"
#include "workers/simulated/event_queue.hpp"
#include "workers/simulated/fiber.hpp"
#include "workers/simulated/inbox.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

class SimulatedCluster : public Cluster, private MessagePool {
 public:
  struct Options {
    int workers = 1;
    int servers = 0;
    int micro_batches = 1;  // usual number per step: so many durations are drawn at once
    const ComputeTime& compute_time;
    const NetworkModel& network;
    Training& training;
    RunObserver* observer = nullptr;      // may be null
    RunRecord* record = nullptr;          // null: nothing is recorded
    const OutagePlan* outages = nullptr;  // null: there are none
    const Pauses* pauses = nullptr;       // null: there are none; not together with servers or outages
  };

  // A run of collectives alone where all stand at the end of the last one.
  struct Progress {
    RunTotals totals{};
    Time row_begin{};  // of the row that comes next, and what had been sent by then
    Bytes sent_before_row{};
  };

  explicit SimulatedCluster(const Options& options);
  ~SimulatedCluster() override;
  Progress progress() const;  // asked by a worker that has just come out of a collective

  int workers() const override { return options_.workers; }
  int servers() const override { return options_.servers; }
  RunTotals run(const Program& work, const Program& serve) override;
  Time now(Rank self) const override { return participants_[index(self)].book.now(); }
  int workers_left(Rank self) override;
  bool has_left(Rank, Rank worker) const override { return participants_[index(worker)].left; }
  std::optional<Gradient> compute_gradient(Rank self, const ModelStatePtr& at, const MicroBatch& slot,
                                           const MicroBatch& samples, const Deadline& deadline) override;
  bool may_lose_state(Rank self) const override;
  bool has_lost_state(Rank self) override;
  Gradient compute_gradients(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count) override;
  Duration sleep_after(Rank self, const MicroBatch& slot) const override;
  StartedCollective start(Rank self, Collective&& what, const Contribution& contribution, Place place) override;
  CollectiveResult finish(Rank self, StartedCollective&& started, Place place) override;
  // Start and finish without anything that the worker would keep between them: with thousands of workers its stack is
  // in no near cache, and each line of it counts.
  AgreedProgress all_reduce_sum(Rank self, Gradient& gradient, std::span<double> numbers,
                                const Contribution& contribution, Place place) override;
  std::vector<PartialSum> partial_all_reduce(Rank self, Gradient gradient, const Activation& activation,
                                             LateGradient late, const Contribution& contribution, Place place) override;
  void finish_round(Rank self, const Contribution& contribution) override;
  void send(Rank self, Rank to, Message&& message, Place place) override;
  ReceivedMessage receive(Rank self, std::optional<Rank> from, Time until, Place place) override;
  void discard(Rank self, const Work& work) override;
  void keep(Rank self, const Work& work, Step staleness) override;
  Bytes bytes_sent() const override { return bytes_; }

 private:
  static constexpr Rank anybody{-1};

  struct Gathering;
  struct Assembly;

  // Two cache lines.
  struct alignas(64) Delivery : Message {
    union {
      Time sent{};
      Delivery* next;  // once it is in an inbox
    };
  };
  static_assert(sizeof(Delivery) == 128);

  // With thousands of workers the cost of a step is that of fetching their memory, so what is touched together stands
  // in one cache line.
  struct alignas(64) Participant {
    // When it runs.
    std::optional<Fiber> fiber;
    const Place* waits_for = nullptr;  // on its stack; null: it runs
    Rank from = anybody;               // while receiving: from whom alone
    bool receiving : 1 = false;        // waits for a message
    bool computing : 1 = false;        // waits for its own end of a micro-batch, or of an outage,
    bool interruptible : 1 = false;    // or for a message that comes before
    bool ended : 1 = false;            // its program has
    bool left : 1 = false;             // and the clock has come to that
    bool lost : 1 = false;             // in a micro-batch that never ends
    std::uint16_t awaits = 0;          // the collective whose end it waits for (Gathering::id); 0: none
    Time last_arrival{};               // of what it has sent: it leaves after that
    Inbox<Delivery> inbox;             // in (time, number) order
    int in_flight = 0;                 // messages sent to it, not yet arrived
    int awaited = 0;                   // who waits for a message from here alone
    int leaves_told = 0;               // a server: of workers that have left
    int started = 0;                   // collectives of all workers
    Book book;
    std::uint64_t wake = 0;  // number of the event that ends its present wait; 0: none
    // What only some methods touch.
    int drawn_first = 0;
    Step drawn_step{-1};
    std::vector<Duration> durations;  // drawn ahead for one step
    Step last_row{};                  // of finish_round
    Step next_round{};                // of partial all-reduces: the first whose result it has not got
    Gradient late;                    // to be added to the next round
    Contribution late_part;
  };

  // What a participant has sent where the network is not plain.
  struct Sender {
    std::int64_t sent = 0;  // messages
    int on_links = 0;       // of these: on shared links, so that their arrival is not known yet
  };

  // What a whole step takes, for some workers in a row: where all ask for the same step one after another, the
  // draws for several of them are made at once, on one stack. Durations are pure functions of their place.
  struct StepTimes {
    static constexpr int most_workers = 32;
    MicroBatch asked;  // last
    int count = 0;
    int first_worker = 0;
    int workers = 0;
    std::array<Duration, most_workers> times;
  };

  // What the next whole steps of one worker take: where it asks for one after another, such as a worker that is
  // alone with a server, the draws for several of them are made at once. One cache line.
  struct alignas(64) StepsAhead {
    static constexpr int most_steps = 6;
    Step end{-1};                              // of those that are drawn
    Step asked{-1};                            // for last
    std::array<Duration, most_steps> times{};  // of steps end - 6 .. end - 1; 0: not drawn
  };

  // A collective, from its first arrival until its members have its result. Sums are formed as they arrive.
  struct Gathering {
    std::uint16_t id = 0;  // not 0; those who wait look whether it is theirs that has ended
    Collective what;       // the first one's, then what comes of it
    Place place;
    int arrived = 0;
    int finished = 0;
    bool has_ended = false;
    Time last_arrival{};
    Time end{};
    StepRow row;
    std::vector<ModelStatePtr> states;  // by place among the members: brought, then what comes back
    std::vector<double> weights;        // likewise
    SharedNumbers numbers;
    AgreedProgress agreement;
  };

  // Workers of consecutive ranks that have collectives among themselves: all, or a group.
  struct Assembly {
    Members members;
    std::deque<Gathering> open;   // in the order in which they were started
    std::int64_t first_open = 0;  // number of the first of them
    Gathering* newest = nullptr;  // the last of them, also when it is through
    std::int64_t newest_number = -1;
    std::int64_t begun = 0;    // collectives, whose costs may vary by number
    bool under_way = false;    // one is on the network
    Time free_at{};            // end of the last one
    std::vector<int> started;  // of a group, by member: collectives
  };

  // The partial all-reduce that is open or under way, and the results that somebody has still to get.
  struct PartialRound {
    Step number{};
    bool under_way = false;
    Time taken_place{};
    Activation activation;
    std::vector<Rank> arrived;
    std::vector<Rank> waiting;      // arrived, or too late and waiting for its result
    std::vector<Rank> accumulated;  // have a late gradient to contribute
    int contributors = 0;
    Gradient sum;
    StepRow row;
    std::deque<PartialSum> results;  // of the rounds before `number`
  };

  // What a micro-batch has left behind.
  struct Pause {
    Duration sleep{};
    Time cut_at{};  // it does not go on beyond that
    Time trailing_until{};
  };

  // A row of steps.csv of a method without collectives, until all workers have done the step.
  struct OpenRow {
    StepRow row;
    int workers = 0;
  };

  struct Event {
    enum class Kind { resume, deliver, finish_collective, arrive_partial, finish_partial, enter_link, leave };
    Time at;
    std::uint64_t number;
    union {
      Delivery* delivery;  // of the pool
      Assembly* assembly;  // whose collective ends
    };
    Rank rank{};
    Kind kind;
    bool before(const Event& other) const { return at != other.at ? at < other.at : number < other.number; }
  };

  // A collective or message on its way over shared links, and the event at its end.
  struct Crossing {
    Route route;
    Event::Kind then{};
    Rank rank{};                   // of that event
    Delivery* delivery = nullptr;  // null: a collective
    Assembly* assembly = nullptr;  // null: a partial all-reduce, or a message
    std::size_t passed = 0;        // hops
  };

  std::size_t index(Rank rank) const { return static_cast<std::size_t>(rank.value); }
  Participant& self(Rank rank) { return participants_[index(rank)]; }
  std::string name(Rank rank) const;

  void start(Rank rank, const Program& program);
  void event_loop();
  void handle(const Event& event);
  void fetch_what_comes_next() const;
  void leave(Rank rank);
  void poll_interrupt();
  std::uint64_t schedule(Time at, Event::Kind kind, Rank rank, Delivery* delivery = nullptr);
  void schedule_end(Time at, Event::Kind kind, Assembly* assembly);
  static void suspend(Participant& participant, const Place& place) {
    participant.waits_for = &place;
    participant.fiber->suspend();
    participant.waits_for = nullptr;
  }
  // Goes on at `at`, unless something else ends the wait before.
  void suspend_until(Rank rank, Time at, const Place& place) {
    Participant& participant = self(rank);
    participant.wake = schedule(at, Event::Kind::resume, rank);
    suspend(participant, place);
    participant.wake = 0;
  }
  void resume(Rank rank) {
    self(rank).fiber->resume();
    if (failure_) std::rethrow_exception(failure_);
  }

  void check_clock(Rank rank, Time now) const;
  Duration draw(Participant& participant, const MicroBatch& micro_batch);
  void draw_ahead(Participant& participant, const MicroBatch& first, int count);
  Duration step_time(const MicroBatch& first, int count);
  [[gnu::noinline]] Duration own_step_time(const MicroBatch& first, int count);
  void draw_ahead_of_time(Rank worker);
  void draw_own_steps(Rank worker, Step first, int steps);
  [[gnu::noinline]] void draw_step_times(const MicroBatch& first, int count);
  void draw_sums(const ComputeTime::Steps& steps, int first, int count, std::span<Duration> times);
  // How long a micro-batch has taken, where that is recorded. Inlined, it costs a branch where it is not.
  void record_duration(Rank rank, const MicroBatch& slot, Duration duration) {
    if (options_.record && options_.record->durations) add_duration(rank, slot, duration);
  }
  void add_duration(Rank rank, const MicroBatch& slot, Duration duration);
  Assembly& assembly_of(Rank rank, const Collective& what);
  Gathering& next_gathering(Assembly& assembly, Rank rank, const Place& place);
  // How many collectives of these members the worker has started.
  int& started_by(Assembly& assembly, Rank rank) {
    if (&assembly == &all_) return self(rank).started;
    return assembly.started[static_cast<std::size_t>(rank.value - assembly.members.first.value)];
  }
  [[gnu::noinline]] static Gathering& older_gathering(Assembly& assembly, std::int64_t number);
  [[gnu::noinline]] Gathering& add_gathering(Assembly& assembly, const Place& place);
  [[gnu::noinline]] void check_sum(const Gathering& gathering, Rank rank, std::span<const double> numbers,
                                   const Place& place) const;
  [[gnu::noinline]] void fail_if_left(Assembly& assembly, std::int64_t number, const Place& place);
  void book_arrival(Assembly& assembly, Gathering& gathering, Rank rank, const Contribution& part);
  void wait_for_end(Rank rank, const Gathering& gathering, const Place& place);
  [[gnu::noinline]] static void release(Gathering& gathering);
  static void take_leave(const Assembly& assembly, Gathering& gathering);
  void join(Gathering& gathering, const Assembly& assembly, Rank rank, Collective&& what, const Place& place);
  void check_alike(const Gathering& gathering, Rank rank, const Collective& what, std::size_t count,
                   const Place& place) const;
  void begin_next(Assembly& assembly);
  void end_collective(Assembly& assembly);
  void form_result(Gathering& gathering);
  CollectiveResult take_result(Assembly& assembly, Gathering& gathering, Rank rank);
  void close_row(const Gathering& gathering);
  std::vector<ModelStatePtr> mean_of(const Gathering& gathering) const;
  void fail_if_awaited(Assembly& assembly, Rank left);
  [[noreturn]] void fail_for_who_left(const Place& place) const;
  [[noreturn, gnu::cold]] void fail_for_rank(Rank from, Rank to, const Place& place) const;
  void begin_collective(Time at, const CollectiveCall& call, Event::Kind end, Assembly* assembly);
  [[gnu::noinline]] void send_in_order(Rank from, Rank to, Bytes bytes, Delivery* delivery);
  Time in_order(Rank from, Rank to, std::size_t stage, Time at);
  void cross(Time at, Crossing crossing);
  void enter_link(std::uint64_t crossing);
  void schedule_leave(Rank rank);
  std::optional<Passage> meet_outages(Rank rank, const MicroBatch& slot, const Deadline& deadline);
  std::optional<Gradient> pass_through(Rank rank, const ModelStatePtr& at, const MicroBatch& slot,
                                       const MicroBatch& samples, const Passage& passage);
  Passage wait_for_message(Rank rank, const Passage& planned);
  void wait_until(Rank rank, Time until, bool interruptible);
  std::optional<Gradient> compute_until_message(Rank rank, const ModelStatePtr& at, const MicroBatch& slot,
                                                const MicroBatch& samples);
  void begin_pause(Rank rank, const MicroBatch& slot, const Deadline& deadline);
  void end_pause(Rank rank);
  void end_trailing_work(Rank rank);
  void pass_time(Rank rank, Time until, const char* what);
  void contribute(Rank rank, Gradient gradient, const Contribution& part);
  void start_partial_round_if_due();
  void end_partial_round();
  std::vector<PartialSum> results_for(Participant& participant);
  Delivery* make_delivery(Message&& message, Time sent);
  ReceivedMessage open(Delivery* delivery) { return {delivery, GiveBack{this}}; }
  void take_back(Message* message) override;
  void deliver(Rank to, Delivery* delivery);
  ReceivedMessage take_first(Participant& participant, Rank from);
  bool nobody_can_send_to(Rank rank, std::optional<Rank> from) const;
  void wake_who_waits_in_vain(Rank left);
  void wake_if_in_vain(Rank rank);
  void close_rows();
  std::string explain_deadlock() const;
  RunTotals totals();

  Options options_;
  SpanRecorder* spans_ = nullptr;      // of the record; null: none are asked for
  std::unique_ptr<StackPool> stacks_;  // outlives the fibers
  std::vector<Participant> participants_;
  std::vector<OutageProgress> outages_;  // by worker; empty: there are none
  std::vector<Pause> pauses_;            // by worker; empty: there are none
  bool one_by_one_ = false;              // micro-batches of a step, because each may be seen
  EventQueue<Event> events_;
  std::deque<Delivery> deliveries_;  // a pool: they do not move
  std::vector<Delivery*> free_deliveries_;
  std::uint64_t next_event_ = 1;
  Time global_{};
  std::exception_ptr failure_;
  int ended_workers_ = 0;  // whose programs have ended
  int leaves_ = 0;         // workers that have left
  int servers_left_ = 0;
  Assembly all_;
  std::map<Members, Assembly> groups_;
  std::uint16_t last_id_ = 0;  // of gatherings
  Time met_at_{};              // end of the last collective of all workers,
  Time last_arrival_{};        // and the last arrival at it
  PartialRound partial_;
  bool has_partial_rounds_ = false;
  std::map<Step, OpenRow> open_rows_;
  std::map<Step, int> ended_after_row_;  // workers whose programs have ended, by their last row
  std::vector<Duration> drawn_;          // scratch
  StepTimes step_times_;
  std::vector<StepsAhead> steps_ahead_;  // by worker; empty until somebody asks
  StepRows rows_;
  Bytes bytes_{};
  std::int64_t kept_ = 0;  // in collectives, over all workers
  std::vector<std::int64_t> staleness_;
  std::int64_t collectives_ = 0;
  std::int64_t messages_ = 0;
  std::int64_t calls_since_poll_ = 0;

  const bool network_is_plain_;                  // the cost of a message depends on nothing but its ends and size
  std::vector<Sender> senders_;                  // by rank; none where the network is plain
  std::vector<Time> link_free_;                  // by link: the end of what it has taken on
  std::map<std::uint64_t, Crossing> crossings_;  // by the number of their next event
  std::map<std::tuple<int, int, std::size_t>, Time> sent_until_;  // from, to, stage: the latest on this connection
  std::int64_t collectives_begun_ = 0;                            // of all workers
};

}  // namespace syncopate
