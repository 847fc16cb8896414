// The cluster that simulates all workers in one process on a virtual clock. Each participant is a fiber that runs ahead
// in its own virtual time and meets the others only in collectives and messages. Events are ordered by time, then by
// number. Tensor arithmetic is deferred (Training), so virtual time never depends on this machine's speed.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "workers/cluster/cluster.hpp"
#include "workers/simulated/messages.hpp"
#include "workers/simulated/simulation_state.hpp"

namespace syncopate {

// A collective, from its first arrival until all members have its result. Sums are added up as members arrive.
struct PendingCollective {
  std::uint16_t id = 0;  // nonzero; a waiting worker holds the id of the collective whose end it awaits
  Collective what;       // the first member's description, and the sums so far
  Place place;
  int arrived = 0;
  int finished = 0;
  bool has_ended = false;
  Time last_arrival{};
  Time end{};
  StepRow row;
  std::vector<std::pair<Rank, Time>> arrivals;  // empty if arrivals are not recorded
  std::vector<ModelStatePtr> states;  // by index among the members: first their contributions, later the results
  std::vector<double> weights;        // by index among the members
  std::vector<Packet> brought;        // packets of an exchange, by index among the members
  BucketArrivals buckets;             // for exchanges that overlap the backward pass
  CollectiveResult result;            // once it has ended, without the parts that differ among members
};

// Workers of consecutive ranks that take part in collectives together: all workers, or a group.
struct CollectiveGroup {
  Members members;
  std::deque<PendingCollective> open;   // in the order of their starts
  std::int64_t first_open = 0;          // number of the first open collective
  PendingCollective* newest = nullptr;  // the collective started last, even if it has ended
  std::int64_t newest_number = -1;
  std::int64_t begun = 0;    // number of collectives begun; jitter depends on it
  bool under_way = false;    // whether a collective is on the network
  Time free_at{};            // end of the last collective
  std::vector<int> started;  // for a group of some workers: number of collectives that each member has started
};

// The state at the end of a collective of all workers, in a run that has used only collectives.
struct ProgressSoFar {
  Time end = start_time;  // end of that collective
  ByRank<Book> books{};   // by worker, until `end`; empty: all books are empty
  std::int64_t kept = 0;  // number of micro-batches kept, over all workers
  std::int64_t collectives = 0;
  Bytes bytes{};
  StepRows rows;
};

// Collectives of the simulated cluster. A result is available at the last arrival plus the network's cost. A worker's
// part is processed while it runs, never in a loop over workers: a step's main cost is fetching each worker's memory.
class PendingCollectives {
 public:
  PendingCollectives(SimulationState& state, Traffic& traffic, SleepTracker& pauses)
      : state_(state),
        traffic_(traffic),
        pauses_(pauses),
        overlap_(state.options.network.overlap()),
        recorded_(arrivals_of(state.options.record)) {
    all_.members = {Rank{0}, state.options.workers};
  }

  // See Cluster.
  StartedCollective start(Rank self, Collective&& what, const Contribution& part, const Place& place);
  CollectiveResult finish(Rank self, StartedCollective&& started, const Place& place);
  bool has_ended(Rank self, const StartedCollective& started, const Place& place);
  // Starts and finishes in one call and keeps nothing on the worker's stack in between. With thousands of workers the
  // stack is in neither L1 nor L2, and each of its cache lines costs time. With separate start and finish, synchronous
  // SGD takes 24 % longer with 16,384 workers on fibers, and 37 % longer with 2,048.
  AgreedProgress all_reduce_sum(Rank self, Gradient& gradient, std::span<double> numbers, const Contribution& part,
                                const Place& place);

  // Event handler: the group's collective on the network has ended.
  void end_collective(CollectiveGroup& group);
  // Fails if a worker waits in a collective for the worker that has left.
  void notify_of_leave(Rank left) {
    fail_if_awaited(all_, left);
    for (auto& [members, group] : groups_) fail_if_awaited(group, left);
  }
  // Call it from the first worker that returns from a collective of all workers.
  ProgressSoFar progress() const;

 private:
  CollectiveGroup& group_of(Rank rank, const Collective& what);
  PendingCollective& next_collective_of(CollectiveGroup& group, Rank rank, const Place& place);
  // Number of this group's collectives that the worker has started.
  int& started_by(CollectiveGroup& group, Rank rank) {
    if (&group == &all_) return state_[rank].started;
    return group.started[group.members.place_of(rank)];
  }
  [[gnu::noinline]] static PendingCollective& older_collective(CollectiveGroup& group, std::int64_t number);
  [[gnu::noinline]] PendingCollective& add_collective(CollectiveGroup& group, const Place& place);
  [[gnu::noinline]] void check_sum(const PendingCollective& collective, Rank rank,
                                   std::span<const double> numbers) const;
  [[gnu::noinline]] void fail_if_left(CollectiveGroup& group, std::int64_t number, const Place& place);
  void book_arrival(CollectiveGroup& group, PendingCollective& collective, Rank rank, const Contribution& part);
  void wait_for_end(Rank rank, const PendingCollective& collective, const Place& place);
  [[gnu::noinline]] static void release(PendingCollective& collective);
  static void take_leave(const CollectiveGroup& group, PendingCollective& collective);
  void join(PendingCollective& collective, const CollectiveGroup& group, Rank rank, Collective&& what);
  void check_alike(const PendingCollective& collective, Rank rank, const Collective& what) const;
  bool overlaps(const PendingCollective& collective) const {
    return overlap_ && collective.what.kind == Collective::Kind::all_reduce;
  }
  void begin_next(CollectiveGroup& group);
  std::vector<ModelStatePtr> mean_of(const PendingCollective& collective, Rank first) const;
  SharedPackets exchanged(PendingCollective& collective) const;
  void fail_if_awaited(CollectiveGroup& group, Rank left);
  [[noreturn]] void fail_for_who_left(const Place& place) const;

  SimulationState& state_;
  Traffic& traffic_;
  SleepTracker& pauses_;
  CollectiveGroup all_;
  std::map<Members, CollectiveGroup> groups_;
  const std::optional<Overlap> overlap_;
  std::uint16_t last_id_ = 0;
  std::vector<GradientArrival>* recorded_;  // null: arrivals are not recorded
  Time met_at_{};                           // end of the last collective of all workers
  Time last_arrival_{};                     // last arrival at that collective
};

// Partial all-reduces of the simulated cluster. Workers arrive in the order of virtual time. Once the activation's
// condition is met, the gradients that have arrived are summed. Workers that arrive later only receive the result.
class PartialSums {
 public:
  PartialSums(SimulationState& state, Traffic& traffic, SleepTracker& pauses)
      : state_(state),
        traffic_(traffic),
        pauses_(pauses),
        by_worker_(state.options.workers),
        rounds_(arrivals_of(state.options.record), start_time) {}

  // See Cluster.
  StartedCollective start(Rank self, Collective&& what, const Contribution& part, const Place& place);
  CollectiveResult finish(Rank self, const Place& place);
  bool are_used() const { return are_used_; }

  // Event handlers: the sum on the network has ended; a worker has left.
  void end_sum();
  void notify_of_leave() {
    if (are_used_) begin_if_due();
  }

  // A gradient that was late for its sum. It is added to the next sum, or lost at the end of the run.
  struct Late {
    Gradient gradient;
    Contribution part;
    // A late gradient may have no micro-batches if a deadline stopped all planned ones.
    bool waits() const { return gradient.micro_batches() > 0 || part.planned > 0; }
  };
  const Late& left_over(Rank worker) const { return by_worker_[worker].late; }

 private:
  struct OfWorker {
    Step next{};  // the first sum whose result the worker has not received
    Late late;
    bool has_one_under_way = false;
    bool in_time = false;  // the worker arrived at its sum in progress before the sum was formed
  };
  // The sum that workers can still join or that is on the network, and results that workers have yet to receive.
  struct Open {
    Step number{};
    bool under_way = false;
    Time begun_at{};
    Time free_from{};  // end of the previous sum
    Activation activation;
    std::vector<Rank> arrived;
    BucketArrivals buckets;         // arrivals, for exchanges that overlap the backward pass
    std::vector<Rank> waiting;      // workers that wait for the result, in time or late
    std::vector<Rank> accumulated;  // workers with a late gradient for the next sum
    int contributors = 0;
    Gradient sum;
    StepRow row;
    std::deque<PartialSum> results;  // results of the sums before `number`
  };

  void meet_the_others(Rank worker, const Place& place);
  void contribute(Rank worker, Gradient gradient, const Contribution& part) {
    state_[worker].book.contribute(part, open_.row);
    open_.sum += std::move(gradient);
  }
  void contribute_late(Rank worker) {
    Late late = std::exchange(by_worker_[worker].late, {});
    contribute(worker, std::move(late.gradient), late.part);
  }
  void begin_if_due();

  SimulationState& state_;
  Traffic& traffic_;
  SleepTracker& pauses_;
  ByRank<OfWorker> by_worker_;
  Open open_;
  NumberedRounds rounds_;  // for the record of arrivals
  bool are_used_ = false;
};

// Micro-batches of the simulated cluster. A deadline, a message or an outage may end a micro-batch. Gradients are
// deferred.
class MicroBatches {
 public:
  MicroBatches(SimulationState& state, DurationPrefetch& durations, SleepTracker& pauses);

  // See Cluster.
  std::optional<Gradient> compute(Rank self, const ModelStatePtr& at, const MicroBatch& slot, const MicroBatch& samples,
                                  const Deadline& deadline);
  Gradient compute_all(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count);
  bool may_lose_state(Rank rank) const {
    return !outages_.empty() && !state_.is_server(rank) && outages_[rank].may_lose_state;
  }
  bool has_lost_state(Rank rank) { return !outages_.empty() && std::exchange(outages_[rank].has_lost_state, false); }
  // How long after `time` the worker is still down in the outages that its account contains.
  Duration down_beyond(Rank worker, Time time) const {
    return outages_.empty() ? Duration{} : outages_[worker].down_beyond(time);
  }

 private:
  [[gnu::noinline]] Gradient compute_each(Rank rank, const ModelStatePtr& at, const MicroBatch& first, int count);
  std::optional<Gradient> compute_until_message(Rank rank, const ModelStatePtr& at, const MicroBatch& slot,
                                                const MicroBatch& samples, const Deadline& deadline);
  std::optional<Passage> meet_outages(Rank rank, const MicroBatch& slot, const MicroBatch& samples,
                                      const Deadline& deadline);
  std::optional<Gradient> pass_through(Rank rank, const ModelStatePtr& at, const MicroBatch& slot,
                                       const MicroBatch& samples, const Passage& passage);
  Duration duration_of(const MicroBatch& slot, const MicroBatch& samples) {
    if (!follows_samples_ || slot == samples) return durations_.of(slot);
    return state_.options.compute_time.duration(slot, samples);
  }
  // The gradient of the layers that a stopped micro-batch has finished; nullopt if there are none. `backward_share`:
  // the finished share of its backward pass.
  std::optional<Gradient> cut(const ModelStatePtr& at, const MicroBatch& samples, double backward_share) const {
    if (backward_share <= 0) return std::nullopt;
    return state_.options.training.partial_gradient(at, samples, backward_share);
  }
  Passage wait_for_message(Rank rank, const Passage& planned);

  SimulationState& state_;
  DurationPrefetch& durations_;
  SleepTracker& pauses_;
  ByRank<OutageProgress> outages_;  // by worker; empty: no outages
  bool each_is_seen_;     // whether the record, outages, pauses or an overlapped exchange need every single micro-batch
  bool follows_samples_;  // whether durations depend on the samples
};

// Rows of steps.csv for methods without collectives. A row is open until every worker has done its step or has ended.
class AsynchronousRows {
 public:
  explicit AsynchronousRows(SimulationState& state) : state_(state), last_(state.options.workers) {}

  void contribute(Rank worker, const Contribution& part);
  void leave(Rank worker) {
    ++ended_after_[last_[worker]];
    close_complete();
  }

 private:
  void close_complete();

  SimulationState& state_;
  std::map<Step, std::pair<StepRow, int>> open_;  // each with the number of workers that have done the step
  ByRank<Step> last_;                             // by worker
  std::map<Step, int> ended_after_;               // number of ended workers, by the last step that they reported
};

class SimulatedCluster : public Cluster {
 public:
  explicit SimulatedCluster(const SimulatedOptions& options);
  ~SimulatedCluster() override;

  int workers() const override { return state_.options.workers; }
  Servers servers() const override { return state_.options.servers; }
  RunTotals run(const Program& work, const Program& serve) override;
  Time now(Rank self) const override { return state_[self].book.now(); }
  int workers_left(Rank rank) override {
    state_[rank].leaves_notified = state_.leaves_to_notify();
    if (served_left_.empty()) return workers() - state_.leaves;
    return servers().number_served_by(rank, workers()) - served_left_[rank];
  }
  bool has_left(Rank, Rank other) const override { return state_[other].left; }
  // Number of handled events: arrivals, ends of waits and ends of collectives. A timer whose wait ended earlier does
  // not count.
  std::int64_t events() const { return events_; }
  // Call it from the first worker that returns from a collective of all workers.
  ProgressSoFar progress() const { return collectives_.progress(); }

  std::optional<Gradient> compute_gradient(Rank self, const ModelStatePtr& at, const MicroBatch& slot,
                                           const MicroBatch& samples, const Deadline& deadline) override {
    return micro_batches_.compute(self, at, slot, samples, deadline);
  }
  Gradient compute_gradients(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count) override {
    return micro_batches_.compute_all(self, at, first, count);
  }
  bool may_lose_state(Rank self) const override { return micro_batches_.may_lose_state(self); }
  bool has_lost_state(Rank self) override { return micro_batches_.has_lost_state(self); }
  Duration sleep_after(Rank, const MicroBatch& slot) const override { return pauses_.sleep_after(slot); }

  StartedCollective start(Rank self, Collective&& what, const Contribution& contribution, Place place) override {
    if (what.kind == Collective::Kind::partial_all_reduce)
      return partial_sums_.start(self, std::move(what), contribution, place);
    return collectives_.start(self, std::move(what), contribution, place);
  }
  CollectiveResult finish(Rank self, StartedCollective&& started, Place place) override {
    if (started.kind == Collective::Kind::partial_all_reduce) return partial_sums_.finish(self, place);
    return collectives_.finish(self, std::move(started), place);
  }
  bool has_ended(Rank self, const StartedCollective& started, Place place) override {
    return collectives_.has_ended(self, started, place);
  }
  AgreedProgress all_reduce_sum(Rank self, Gradient& gradient, std::span<double> numbers,
                                const Contribution& contribution, Place place) override {
    return collectives_.all_reduce_sum(self, gradient, numbers, contribution, place);
  }
  void report_steps(Rank self, const Contribution& contribution) override {
    asynchronous_rows_.contribute(self, contribution);
  }

  void send(Rank self, Rank to, Message&& message, Place place) override {
    messages_.send(self, to, std::move(message), place);
  }
  ReceivedMessage receive(Rank self, std::optional<Rank> from, Time until, Place place) override {
    return messages_.receive(self, from, until, place);
  }
  void discard(Rank, const BookedTime& work) override { state_[work.worker].book.lose(work.time); }
  void keep(Rank self, const BookedTime& work, Step staleness) override;
  Bytes bytes_sent() const override { return state_.bytes; }

 private:
  void begin(Rank rank, const Program& program);
  void event_loop();
  void handle(const Event& event);
  void fetch_what_comes_next() const;
  void leave(Rank rank);
  std::string explain_deadlock() const;
  RunTotals totals();

  SimulationState state_;
  DurationPrefetch durations_;
  SleepTracker pauses_;
  Traffic traffic_;
  MicroBatches micro_batches_;
  PendingCollectives collectives_;
  PartialSums partial_sums_;
  SimulatedMessages messages_;
  AsynchronousRows asynchronous_rows_;
  std::vector<std::int64_t> staleness_;
  ByRank<int> served_left_;  // by regional server: number of its workers that have left; empty without regions
  std::int64_t events_ = 0;
};

// Returns the fastest cluster with SimulatedCluster's results (lockstep.cpp). Workers act alike after `alike_from`;
// nullopt: never.
std::unique_ptr<Cluster> make_simulated_cluster(const SimulatedOptions& options, std::optional<Step> alike_from);

}  // namespace syncopate
