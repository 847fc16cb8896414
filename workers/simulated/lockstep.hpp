// Time-only runs of methods whose workers act alike: between two collectives no worker decides anything by its own
// clock, rank or gradients. Then one program, worker 0's, runs for all workers ("in lockstep"), and the workers' times
// are arrays. Results equal those of SimulatedCluster to the nanosecond; tests check this. A worker's step costs little
// more than its random numbers. SimulatedCluster instead switches to a fiber per worker, whose memory is in neither L1
// nor L2 if there are thousands. A call acts for all workers:
// - compute_gradients: each worker takes its own time.
// - compute_gradient with a deadline: a worker that the deadline stops computes nothing until the next collective. Each
//   other worker takes its own time. The call returns a gradient if any worker has computed one. So a program's loop
//   that ends at the first missing gradient ends when all workers are stopped.
// - collectives: each worker contributes the micro-batches that it has computed since the last collective.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "workers/cluster/cluster.hpp"
#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {

class LockstepCluster : public Cluster {
 public:
  // True for time-only runs without servers, a record, outages, pauses, recorded times that can run out, and times that
  // depend on samples. Shared links are allowed, because they do not affect collectives of all workers.
  static bool can_simulate(const SimulatedOptions& options);

  // `so_far`: the state of another cluster at the end of a collective, from which this one continues.
  explicit LockstepCluster(const SimulatedOptions& options, ProgressSoFar so_far = {});

  int workers() const override { return options_.workers; }
  Servers servers() const override { return 0; }
  RunTotals run(const Program& work, const Program& serve) override;
  RunTotals totals() const;
  Time now(Rank) const override { return met_at_ + spent_.front(); }
  int workers_left(Rank) override { return options_.workers; }
  bool has_left(Rank, Rank) const override { return false; }
  std::optional<Gradient> compute_gradient(Rank self, const ModelStatePtr& at, const MicroBatch& slot,
                                           const MicroBatch& samples, const Deadline& deadline) override;
  Gradient compute_gradients(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count) override;
  // Nothing may be computed between start and finish, because a worker that computes there acts by its own clock.
  StartedCollective start(Rank self, Collective&& what, const Contribution& contribution, Place place) override;
  CollectiveResult finish(Rank self, StartedCollective&& started, Place place) override;
  Bytes bytes_sent() const override { return bytes_; }

  // Methods whose workers act alike do not call the following functions, which throw std::logic_error.
  bool has_ended(Rank, const StartedCollective&, Place place) override { fail_for_unlike(place.operation); }
  void report_steps(Rank, const Contribution&) override { fail_for_unlike("report_steps"); }
  void send(Rank, Rank, Message&&, Place place) override { fail_for_unlike(place.operation); }
  ReceivedMessage receive(Rank, std::optional<Rank>, Time, Place place) override { fail_for_unlike(place.operation); }
  void discard(Rank, const BookedTime&) override { fail_for_unlike("discard"); }
  void keep(Rank, const BookedTime&, Step) override { fail_for_unlike("keep"); }

 private:
  // Durations of consecutive micro-batches of one step: times[m * workers + i] is micro-batch first + m of worker i.
  struct Drawn {
    Step step{-1};
    int first = 0;
    int count = 0;
    std::vector<Duration> times;
    int end() const { return first + count; }
    std::span<const Duration> of(int micro_batch, std::size_t workers) const {
      return std::span(times).subspan(static_cast<std::size_t>(micro_batch - first) * workers, workers);
    }
  };

  std::size_t size() const { return static_cast<std::size_t>(options_.workers); }
  template <typename Take>
  void draw_rows(const MicroBatch& first, int count, const Take& take);
  void draw(const MicroBatch& first);
  bool add_times(const Deadline& deadline, std::span<const Duration> times);
  // `part`: each worker's contribution. Null: nothing is booked, and computed micro-batches count at the next
  // collective.
  AgreedProgress meet(const Collective& what, const Contribution* part, const Place& place);
  Time end_of(const Collective& what, const CollectiveCall& call, Time last_arrival);
  void book(const Contribution& part, StepRow& row);
  Book book_of(Rank worker, Duration since_meeting) const;
  void check_clock() const;
  [[noreturn]] static void fail_for_unlike(const char* operation);
  [[noreturn]] void fail_for_lost(const Place& place) const;

  SimulatedOptions options_;
  ByRank<Book> before_;  // books of the cluster that this one continues; empty: there is no such cluster
  Time met_at_{};        // end of the last collective, at which all workers' clocks are equal
  // The following are arrays, which become books only at the end of the run: a step processes arrays with vector
  // instructions, but the books of thousands of workers would not fit the caches. By worker, since the last collective:
  std::vector<Duration> spent_;
  std::vector<std::int64_t> is_stopped_;  // 1: stopped by a deadline; 0: not stopped
  ByRank<char> is_lost_;                  // 1: in a micro-batch that never ends
  std::vector<std::int64_t> computed_;    // micro-batches to book, in addition to computed_by_all_
  std::int64_t computed_by_all_ = 0;
  // For exchanges that overlap the backward pass: duration of the step's last micro-batch, 0 if the worker was stopped.
  // Empty without overlap.
  std::vector<Duration> last_micro_batch_;
  bool any_lost_ = false;
  // By worker, since this cluster began:
  std::vector<Duration> busy_;  // until the last collective
  std::vector<Duration> discarded_;
  std::vector<std::int64_t> kept_;
  std::int64_t planned_ = 0;   // per worker
  Duration until_arrivals_{};  // total over the collectives: from the end of the previous one to the last arrival
  Duration communicating_{};
  std::int64_t kept_in_all_ = 0;
  std::int64_t collectives_ = 0;
  Bytes bytes_{};
  StepRows rows_;
  std::optional<CollectiveResult> started_;
  Drawn drawn_;
  std::vector<Duration> drawn_rows_;  // scratch
};

// Time-only runs of methods whose workers act alike only after step `alike_from`, such as DropCompute once it has found
// its threshold. They run on fibers until the first collective of a later step ends, then in lockstep.
class FibersThenLockstep : public Cluster {
 public:
  FibersThenLockstep(const SimulatedOptions& options, Step alike_from)
      : options_(options), alike_from_(alike_from), fibers_(options) {}

  RunTotals run(const Program& work, const Program& serve) override;
  CollectiveResult finish(Rank self, StartedCollective&& started, Place place) override;
  AgreedProgress all_reduce_sum(Rank self, Gradient& gradient, std::span<double> numbers,
                                const Contribution& contribution, Place place) override;

  // All other calls go to the current cluster. There are neither outages nor pauses (LockstepCluster::can_simulate).
  int workers() const override { return wrapped().workers(); }
  Servers servers() const override { return wrapped().servers(); }
  Time now(Rank self) const override { return wrapped().now(self); }
  int workers_left(Rank self) override { return wrapped().workers_left(self); }
  bool has_left(Rank self, Rank worker) const override { return wrapped().has_left(self, worker); }

  std::optional<Gradient> compute_gradient(Rank self, const ModelStatePtr& at, const MicroBatch& slot,
                                           const MicroBatch& samples, const Deadline& deadline) override {
    return wrapped().compute_gradient(self, at, slot, samples, deadline);
  }
  Gradient compute_gradients(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count) override {
    return wrapped().compute_gradients(self, at, first, count);
  }
  StartedCollective start(Rank self, Collective&& what, const Contribution& contribution, Place place) override {
    return wrapped().start(self, std::move(what), contribution, place);
  }
  bool has_ended(Rank self, const StartedCollective& started, Place place) override {
    return wrapped().has_ended(self, started, place);
  }
  void report_steps(Rank self, const Contribution& contribution) override {
    wrapped().report_steps(self, contribution);
  }
  void send(Rank self, Rank to, Message&& message, Place place) override {
    wrapped().send(self, to, std::move(message), place);
  }
  ReceivedMessage receive(Rank self, std::optional<Rank> from, Time until, Place place) override {
    return wrapped().receive(self, from, until, place);
  }
  void discard(Rank self, const BookedTime& work) override { wrapped().discard(self, work); }
  void keep(Rank self, const BookedTime& work, Step staleness) override { wrapped().keep(self, work, staleness); }
  Bytes bytes_sent() const override { return wrapped().bytes_sent(); }

 private:
  Cluster& wrapped() { return lockstep_ ? static_cast<Cluster&>(*lockstep_) : fibers_; }
  const Cluster& wrapped() const { return lockstep_ ? static_cast<const Cluster&>(*lockstep_) : fibers_; }
  void go_on_in_lockstep_after(Rank self, Step step);

  SimulatedOptions options_;
  Step alike_from_;
  std::optional<LockstepCluster> lockstep_;
  SimulatedCluster fibers_;  // destroyed first: its fibers may still be in calls
};

// Returns the fastest cluster with SimulatedCluster's results. Workers act alike after `alike_from`; nullopt: never.
std::unique_ptr<Cluster> make_simulated_cluster(const SimulatedOptions& options, std::optional<Step> alike_from);

}  // namespace syncopate
