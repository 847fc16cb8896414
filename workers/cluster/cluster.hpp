// The interface between methods and clusters. Worker and Server (worker.hpp, server.hpp) use it. SimulatedCluster
// (virtual clock, all workers in one process) and MpiCluster (wall clock, one worker per process) implement it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workers/base/process.hpp"
#include "workers/base/units.hpp"
#include "workers/cluster/accounting.hpp"
#include "workers/cluster/calls.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/training/gradient.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

class Cluster {
 public:
  using Program = std::function<void(Rank)>;

  virtual ~Cluster() = default;

  virtual int workers() const = 0;
  virtual Servers servers() const = 0;
  Rank server(int shard = 0) const { return Rank{workers() + shard}; }
  bool is_server(Rank rank) const { return rank.value >= workers(); }

  // Runs the programs of this process's participants to their end. `serve` is null for methods without servers. A
  // worker that ends before the others has left: servers are notified (receive), partial all-reduces continue without
  // it, and a collective that needs it fails and names it. Throws RunFailure, Interrupted, or a program's exception.
  virtual RunTotals run(const Program& work, const Program& serve) = 0;

  // Programs call the following functions; `self` is the calling participant.
  virtual Time now(Rank self) const = 0;

  // The number of workers that have not ended, and whether `other` has ended, as far as `self` knows. A region's server
  // counts its own workers, and the global server counts the regions' servers.
  virtual int workers_left(Rank self) = 0;
  virtual bool has_left(Rank self, Rank other) const = 0;

  // Returns the gradient of the micro-batch `samples`; nullopt if the deadline stopped it or an outage erased the
  // worker's state (see has_lost_state). `slot` decides how long the computation takes. It differs from `samples` if a
  // worker computes another worker's micro-batch, or one that was dropped before.
  virtual std::optional<Gradient> compute_gradient(Rank self, const ModelStatePtr& at, const MicroBatch& slot,
                                                   const MicroBatch& samples, const Deadline& deadline) = 0;

  // Whether an outage (workers/time/outages.hpp) may erase this worker's state.
  virtual bool may_lose_state(Rank) const { return false; }
  // Whether an outage erased the state during the last compute_gradient. Each call resets this to false. The worker is
  // up again, but the micro-batch is lost.
  virtual bool has_lost_state(Rank) { return false; }

  // The sum of `count` gradients, from micro-batch first.index on. Not for workers that may lose their state.
  virtual Gradient compute_gradients(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count);

  // The sleep after a micro-batch, if delays are sleeps (workers/time/compute_time.hpp); otherwise 0.
  virtual Duration sleep_after(Rank, const MicroBatch&) const { return {}; }

  // Collectives. All workers (not the servers), or all workers of a group, take part and give the same description. A
  // started collective runs while its worker computes. It ends at the last member's start plus the network's cost.
  // Collectives of the same members run one after another, and all members must start them in the same order. Finish
  // each once, in any order; `finish` waits for its end. A worker that leaves without finishing blocks no other worker.
  virtual StartedCollective start(Rank self, Collective&& what, const Contribution& contribution, Place place) = 0;
  virtual CollectiveResult finish(Rank self, StartedCollective&& started, Place place) = 0;
  // Whether a started collective (not a partial all-reduce) has ended by this worker's time. Takes no time.
  virtual bool has_ended(Rank self, const StartedCollective& started, Place place) = 0;
  virtual CollectiveResult perform(Rank self, Collective&& what, const Contribution& contribution, Place place) {
    return finish(self, start(self, std::move(what), contribution, place), place);
  }

  // Each of these functions performs a collective. all_reduce_sum and average overwrite the worker's part.
  // `numbers` have the same length on all workers and are also summed (4 bytes each).
  virtual AgreedProgress all_reduce_sum(Rank self, Gradient& gradient, std::span<double> numbers,
                                        const Contribution& contribution, Place place);
  std::vector<PartialSum> partial_all_reduce(Rank self, Gradient gradient, const Activation& activation,
                                             LateGradient late, const Contribution& contribution, Place place) {
    return perform(self, Collective::partial_all_reduce(std::move(gradient), activation, late), contribution, place)
        .sums;
  }
  AgreedProgress average(Rank self, ModelStatePtr& state, const Averaging& averaging, const Contribution& contribution,
                         Place place) {
    CollectiveResult result = perform(self, Collective::average(std::move(state), averaging), contribution, place);
    state = std::move(result.model);
    return result.agreement;
  }
  // Makes a row of steps.csv if any worker contributes.
  AgreedProgress barrier(Rank self, Place place, const Contribution& contribution = {}) {
    return perform(self, Collective::barrier(), contribution, place).agreement;
  }
  // Returns all workers' numbers in the order of ranks. All workers must pass the same number of them.
  SharedNumbers all_gather(Rank self, std::span<const double> numbers, Place place) {
    return perform(self, Collective::all_gather(numbers), {}, place).numbers;
  }

  // Books a worker's steps, for methods without collectives and servers. Steps of all workers with the same number form
  // one row. Takes no time.
  virtual void report_steps(Rank self, const Contribution& contribution) = 0;

  // Messages arrive in the order of time, then of a sequence number. Sending does not block. `receive` returns the
  // first message (of `from`, if given). It returns null once `until` has passed, or if no participant is left that
  // could send one. A server's `receive` also returns null if a worker (or a served server) has left since the server
  // last called workers_left or was notified.
  virtual void send(Rank self, Rank to, Message&& message, Place place) = 0;
  virtual ReceivedMessage receive(Rank self, std::optional<Rank> from, Time until, Place place) = 0;

  // Books the work as its worker's discarded time, and its micro-batches as dropped.
  virtual void discard(Rank self, const BookedTime& work) = 0;
  // Books the work as kept by its worker, and the gradient's staleness. If several servers share a gradient, only
  // one of them calls this.
  virtual void keep(Rank self, const BookedTime& work, Step staleness) = 0;

  virtual Bytes bytes_sent() const = 0;
};

// A deadlock: what every participant waits for, and where in the method.
struct Deadlock {
  Time at{};
  bool after_loss = false;  // a participant is in a micro-batch that never ends, so the method is right to wait
  std::map<std::string, std::vector<int>> workers_by_state{};  // ranks in ascending order
  std::vector<std::pair<std::string, std::string>> servers{};  // name and state
};

// For example "waiting in receive for worker 3 (algorithms/quorum/backup_workers.hpp:20)", or "ended" if `place` is
// null. `from`: the awaited participant, if known.
std::string what_it_waits_for(const Place* place, const std::string& from = "");

std::string explain(const Deadlock& deadlock);

std::string explain_end_of_clock(std::string_view who);

// Returns the path of a method's file within the project, and the last two parts of any other path.
std::string short_path(std::string_view path);

}  // namespace syncopate
