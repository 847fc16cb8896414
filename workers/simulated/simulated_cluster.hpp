// All workers in one process on a virtual clock. Each participant is a fiber that runs ahead in its
// own virtual time and meets the others only in collectives and messages; events are ordered by
// time, then by number. Tensor arithmetic is only promised here, so virtual time never depends on
// this machine's speed.
#pragma once

#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "workers/cluster.hpp"
#include "workers/delays/compute_time.hpp"
#include "workers/delays/network.hpp"
#include "workers/simulated/fiber.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

class SimulatedCluster : public Cluster {
 public:
  struct Options {
    int workers = 1;
    bool has_server = false;
    int micro_batches = 1;  // usual number per step: so many durations are drawn at once
    const ComputeTime& compute_time;
    const NetworkModel& network;
    Training& training;
    RunObserver* observer = nullptr;  // may be null
  };

  explicit SimulatedCluster(const Options& options);
  ~SimulatedCluster() override;

  int workers() const override { return options_.workers; }
  RunTotals run(const Program& work, const Program& serve) override;
  Time now(Rank self) const override { return participants_[index(self)].now; }
  std::optional<Gradient> compute_gradient(Rank self, const ModelStatePtr& at, const MicroBatch& micro_batch,
                                           const Deadline& deadline) override;
  Gradient compute_gradients(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count) override;
  Agreement all_reduce_sum(Rank self, Gradient& gradient, const Contribution& contribution, Place place) override;
  Agreement average(Rank self, ModelStatePtr& state, const AveragePolicy& policy, const Contribution& contribution,
                    Place place) override;
  Agreement broadcast(Rank self, ModelStatePtr& state, Rank root, Place place) override;
  Agreement barrier(Rank self, Place place) override;
  void send(Rank self, Rank to, Message message, Place place) override;
  std::optional<Message> receive(Rank self, Time until, Place place) override;
  void discard(Rank self, const Message& message) override;
  void keep(Rank self, const Message& message) override;
  Bytes bytes_sent() const override { return bytes_; }

 private:
  enum class Collective { none, all_reduce, average, broadcast, barrier };

  struct Delivery {
    Message message;
    Time sent;
  };

  // What every step touches fills the first three cache lines: with thousands of workers the cost of a
  // step is that of fetching their memory.
  struct alignas(64) Participant {
    std::optional<Fiber> fiber;
    Time now{};
    Time met_at{};  // last time it met others: until then its clock is everybody's, after it it has run ahead
    Account account;
    std::int64_t computed = 0;  // micro-batches whose gradient exists
    std::int64_t kept = 0;
    std::int64_t dropped = 0;
    std::uint64_t wake = 0;            // number of the event that ends its present wait; 0: none
    const Place* waits_for = nullptr;  // on its stack; null: it runs
    bool receiving = false;
    bool ended = false;
    // What only some methods touch.
    int drawn_first = 0;
    Step drawn_step{-1};
    std::vector<Duration> durations;  // drawn ahead for one step
    Duration kept_time{};             // server methods: compute time of what the server kept
    std::deque<Delivery> inbox;       // arrived, in (time, number) order
    int in_flight = 0;                // sent to it, not yet arrived
  };

  // The collective that workers are gathering for. Sums are formed as they arrive.
  struct Gathering {
    Collective operation = Collective::none;
    Place place;
    int arrived = 0;
    Time last_arrival{};
    Round round;
    Gradient sum;
    std::vector<ModelStatePtr> states;  // by rank
    AveragePolicy policy;
    Rank root{};
  };

  // The last collective that ended, as long as workers still pick up its result: the first of them
  // may already stand in the next one.
  struct Meeting {
    Time last_arrival{};
    Time end{};
    Agreement agreement;
    Gradient sum;
    std::vector<ModelStatePtr> states;
  };

  struct Event {
    enum class Kind { resume, deliver, finish_collective };
    Time at;
    std::uint64_t number;
    Kind kind;
    Rank rank{};
    std::unique_ptr<Delivery> delivery;
    // Order of a heap with the earliest event on top.
    bool operator<(const Event& other) const { return at != other.at ? at > other.at : number > other.number; }
  };

  std::size_t index(Rank rank) const { return static_cast<std::size_t>(rank.value); }
  Participant& self(Rank rank) { return participants_[index(rank)]; }
  std::string name(Rank rank) const;

  void start(Rank rank, const Program& program);
  void event_loop();
  void poll_interrupt();
  std::uint64_t schedule(Time at, Event::Kind kind, Rank rank, std::unique_ptr<Delivery> delivery = nullptr);
  static void suspend(Participant& participant, const Place& place) {
    participant.waits_for = &place;
    participant.fiber->suspend();
    participant.waits_for = nullptr;
    participant.wake = 0;
  }
  void resume(Rank rank) {
    self(rank).fiber->resume();
    if (failure_) std::rethrow_exception(failure_);
  }
  void resume_at(Rank rank, Time at);

  void check_clock(Rank rank, Time now) const;
  Duration draw(Participant& participant, const MicroBatch& micro_batch);
  void draw_ahead(Participant& participant, const MicroBatch& first, int count);
  Gathering& arrive(Rank rank, Collective operation, const Contribution& contribution, const Place& place);
  [[gnu::always_inline]] Agreement meet(Rank rank, const Place& place);
  void schedule_collective_end();
  void end_collective();
  Bytes payload() const;
  void deliver(Rank to, Delivery delivery);
  Message take_first(Participant& participant);
  bool nobody_can_send_to(Rank rank) const;
  void wake_who_waits_in_vain();
  std::string explain_deadlock() const;
  RunTotals totals();

  Options options_;
  std::unique_ptr<StackPool> stacks_;  // outlives the fibers
  std::vector<Participant> participants_;
  std::vector<Event> events_;  // a heap
  std::uint64_t next_event_ = 1;
  Time global_{};
  std::exception_ptr failure_;
  bool somebody_ended_ = false;
  Gathering gathering_;
  Meeting meeting_;
  std::vector<Duration> drawn_;  // scratch of compute_gradients
  Time last_round_end_{};
  Bytes last_round_bytes_{};
  Bytes bytes_{};
  std::int64_t kept_ = 0;  // in collectives, over all workers
  std::int64_t collectives_ = 0;
  std::int64_t messages_ = 0;
  std::int64_t calls_since_poll_ = 0;
};

}  // namespace syncopate
