// Time-only runs of methods whose workers act alike: none of them decides anything by its own clock, rank or
// gradients between two collectives. One program, worker 0's, then stands for all,
// and what differs between workers, how long they compute, stands in arrays. Results are those of SimulatedCluster,
// to the nanosecond, which the tests compare; a worker's step costs little more than its random numbers, where
// SimulatedCluster switches to a fiber that is neither in L1 nor in L2 once there are thousands.
//
// What a call means for all workers:
// - compute_gradients: each takes its own time.
// - compute_gradient with a deadline: each that has not yet been stopped by one takes its own time, or is stopped.
//   It gives a gradient as long as somebody has computed one, so that a loop over micro-batches that ends with the
//   first that fails goes on until it has ended for all. Who is stopped computes no more until the workers meet.
// - collectives: everybody brings what it has computed since the last one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "workers/base/units.hpp"
#include "workers/cluster/accounting.hpp"
#include "workers/cluster/cluster.hpp"
#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {

class LockstepCluster : public Cluster {
 public:
  // Neither tensors, servers, a record, outages, pauses nor traces. Links matter to nobody: nothing is sent, and
  // collectives of all go one after another.
  static bool can_simulate(const SimulatedOptions& options);

  // Goes on where another cluster stands at the end of a collective.
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
  // Nothing is computed between start and finish: who computes then acts by its own clock.
  StartedCollective start(Rank self, Collective&& what, const Contribution& contribution, Place place) override;
  CollectiveResult finish(Rank self, StartedCollective&& started, Place place) override;
  Bytes bytes_sent() const override { return bytes_; }

  // What workers that act alike do not do: std::logic_error.
  void report_steps(Rank self, const Contribution& contribution) override;
  void send(Rank self, Rank to, Message&& message, Place place) override;
  ReceivedMessage receive(Rank self, std::optional<Rank> from, Time until, Place place) override;
  void discard(Rank self, const Work& work) override;
  void keep(Rank self, const Work& work, Step staleness) override;

 private:
  // Durations of some micro-batches of one step, one row of all workers' for each.
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
  void draw(const MicroBatch& first);
  bool add_times(const Deadline& deadline, std::span<const Duration> times);
  bool add_times_until(Duration limit, std::span<const Duration> times);
  // `part` is what one worker brings; null: nothing is booked, and what has been computed waits for the next one.
  AgreedProgress meet(const Collective& what, const Contribution* part, const Place& place);
  Time end_of(const Collective& what, const CollectiveCall& call, Time last_arrival);
  void book(const Contribution& part, StepRow& row);
  Book book_of(Rank worker, Duration since_meeting) const;
  void check_clock() const;
  [[noreturn]] void fail_for_lost(const Place& place) const;

  SimulatedOptions options_;
  ByRank<Book> before_;  // by worker: of the cluster that it goes on from; empty: there was none
  Time met_at_{};        // last: then all clocks were equal
  // Until the end, when they become books, these are arrays: a step goes through them with vector instructions, and
  // with the books of thousands of workers it would go through memory.
  // Since then, by worker:
  std::vector<Duration> spent_;
  std::vector<std::int64_t> is_stopped_;  // 1: by a deadline; else 0
  ByRank<char> is_lost_;                  // in a micro-batch that never ends
  std::vector<std::int64_t> computed_;    // micro-batches, beside those that all have computed, until they are booked
  std::int64_t computed_by_all_ = 0;
  // Where exchanges overlap the backward pass, by worker: the last micro-batch of a step, if it was kept; else empty.
  std::vector<Duration> last_micro_batch_;
  bool any_lost_ = false;
  // Since it began, by worker:
  std::vector<Duration> busy_;  // until the last meeting
  std::vector<Duration> discarded_;
  std::vector<std::int64_t> kept_;
  std::int64_t planned_ = 0;   // of each worker
  Duration until_arrivals_{};  // from each meeting to the last arrival at the next one, in all
  Duration communicating_{};
  std::int64_t kept_in_all_ = 0;
  std::int64_t collectives_ = 0;
  Bytes bytes_{};
  StepRows rows_;
  std::optional<CollectiveResult> started_;
  Drawn drawn_;
  std::vector<Duration> drawn_rows_;  // scratch
};

// Time-only runs of methods whose workers act alike from some step on, such as DropCompute once it has found its
// threshold: on fibers until the collective that ends that step, in lockstep from then on.
class FibersThenLockstep : public ForwardingCluster {
 public:
  FibersThenLockstep(const SimulatedOptions& options, Step alike_from)
      : options_(options), alike_from_(alike_from), fibers_(options) {}

  RunTotals run(const Program& work, const Program& serve) override;
  CollectiveResult finish(Rank self, StartedCollective&& started, Place place) override;
  AgreedProgress all_reduce_sum(Rank self, Gradient& gradient, std::span<double> numbers,
                                const Contribution& contribution, Place place) override;

 private:
  Cluster& wrapped() override { return lockstep_ ? static_cast<Cluster&>(*lockstep_) : fibers_; }
  const Cluster& wrapped() const override { return lockstep_ ? static_cast<const Cluster&>(*lockstep_) : fibers_; }
  void go_on_in_lockstep_after(Rank self, Step step);

  SimulatedOptions options_;
  Step alike_from_;
  std::optional<LockstepCluster> lockstep_;
  SimulatedCluster fibers_;  // is destroyed first: its fibers may still be in calls
};

// What the workers of a run take at the least, with their part of its results: half of what was measured in lockstep
// (470 bytes each), nearly that on fibers with stacks of their own (6,600, most of it pages of these) and on one stack
// in turn (2,900 with asynchronous SGD, 3,700 with D-PSGD).
std::int64_t least_bytes_of_workers(const SimulatedOptions& options, std::optional<Step> alike_from);

// The fastest cluster that gives the results of SimulatedCluster. alike_from: the step from which on all workers take
// the same course; none: they never do.
std::unique_ptr<Cluster> make_simulated_cluster(const SimulatedOptions& options, std::optional<Step> alike_from);

}  // namespace syncopate
