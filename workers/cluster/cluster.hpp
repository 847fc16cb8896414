// The seam between methods and what they run on. Worker and Server (worker.hpp) are written on top
// of it once; SimulatedCluster (virtual clock, all workers in one process) and MpiCluster (wall
// clock, one worker per process) implement it.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "workers/cluster/collective.hpp"
#include "workers/cluster/deadline.hpp"
#include "workers/cluster/message.hpp"
#include "workers/cluster/place.hpp"
#include "workers/cluster/run_observer.hpp"
#include "workers/cluster/run_totals.hpp"
#include "workers/cluster/servers.hpp"
#include "workers/cluster/work.hpp"
#include "workers/process/interrupt.hpp"
#include "workers/process/run_failure.hpp"
#include "workers/training/gradient.hpp"
#include "workers/training/training.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

class Cluster {
 public:
  using Program = std::function<void(Rank)>;

  virtual ~Cluster() = default;

  virtual int workers() const = 0;
  virtual Servers servers() const = 0;
  // The rank of a server, where a method has one or several.
  Rank server(int shard = 0) const { return Rank{workers() + shard}; }
  bool is_server(Rank rank) const { return rank.value >= workers(); }

  // Runs the programs of all participants of this process to their end. `serve` is null for methods
  // without a server. A worker that ends before the others has left: servers are told (receive), partial
  // all-reduces go on without it, and a collective that needs it fails with that reason.
  // Throws RunFailure (a deadlock, a lost rank), Interrupted, or what a program threw.
  virtual RunTotals run(const Program& work, const Program& serve) = 0;

  // The calls below are made from within the programs, each by participant `self`.
  virtual Time now(Rank self) const = 0;

  // Workers that have not ended, as far as is known here; to a region's server its own, to the global one the regions'
  // servers.
  virtual int workers_left(Rank self) = 0;
  // Whether a participant has, as far as is known here.
  virtual bool has_left(Rank self, Rank other) const = 0;

  // The gradient of the micro-batch `samples`, or nothing if the deadline stopped it, or if an outage took the
  // worker's state (see has_lost_state). `slot` decides how long it takes; the two differ where a worker computes
  // what was another's, or was dropped before.
  virtual std::optional<Gradient> compute_gradient(Rank self, const ModelStatePtr& at, const MicroBatch& slot,
                                                   const MicroBatch& samples, const Deadline& deadline) = 0;

  // Outages (workers/delays/outages.hpp): whether one of this worker's may take its state.
  virtual bool may_lose_state(Rank) const { return false; }
  // Whether one has in the last compute_gradient. The worker is up again; the micro-batch was lost. Asked once.
  virtual bool has_lost_state(Rank) { return false; }

  // The sum over micro-batches first.index .. first.index + count - 1 of a step, without a deadline. Not for a
  // worker that may lose its state.
  virtual Gradient compute_gradients(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count);

  // The sleep that follows a micro-batch, where delays are sleeps (workers/delays/pauses.hpp); else none.
  virtual Duration sleep_after(Rank, const MicroBatch&) const { return {}; }

  // Collectives. All workers (not the servers) take part, or those of a group, with the same description. What is
  // started goes on while its worker computes: it ends at the last start plus the network's cost, and collectives of
  // the same members go one after another, in the order in which all of them start them. Each is finished once, in
  // any order; that waits for its end. A worker that leaves without finishing what it has started holds up nobody.
  virtual StartedCollective start(Rank self, Collective&& what, const Contribution& contribution, Place place) = 0;
  virtual CollectiveResult finish(Rank self, StartedCollective&& started, Place place) = 0;
  // Both at once.
  virtual CollectiveResult perform(Rank self, Collective&& what, const Contribution& contribution, Place place) {
    return finish(self, start(self, std::move(what), contribution, place), place);
  }

  // The same, with what comes back in the place of what was brought. `numbers`, as many on each worker, are summed
  // along with the gradient (4 bytes each on the network).
  virtual AgreedProgress all_reduce_sum(Rank self, Gradient& gradient, std::span<double> numbers,
                                        const Contribution& contribution, Place place);
  std::vector<PartialSum> partial_all_reduce(Rank self, Gradient gradient, const Activation& activation,
                                             LateGradient late, const Contribution& contribution, Place place);
  AgreedProgress average(Rank self, ModelStatePtr& state, const Averaging& averaging, const Contribution& contribution,
                         Place place);
  AgreedProgress broadcast(Rank self, ModelStatePtr& state, Rank root, Place place);
  // A row of steps.csv where somebody contributes.
  AgreedProgress barrier(Rank self, Place place, const Contribution& contribution = {});
  // Everybody's numbers in the order of the ranks; as many on each worker.
  SharedNumbers all_gather(Rank self, std::span<const double> numbers, Place place);

  // Books a worker's steps where a method has neither collectives nor a server: rounds of equal number are
  // one row of steps.csv. Takes no time.
  virtual void report_steps(Rank self, const Contribution& contribution) = 0;

  // Messages arrive in (time, sequence) order. Sending does not block. receive gives the first one, of
  // `from` alone if that is given; nothing once `until` has passed, or when nobody is left who could send,
  // or, to a server, when a worker has left since it last asked or was told. Where servers have servers, the same of
  // these.
  virtual void send(Rank self, Rank to, Message&& message, Place place) = 0;
  virtual ReceivedMessage receive(Rank self, std::optional<Rank> from, Time until, Place place) = 0;

  // Books the work as discarded, and its micro-batches as dropped, with its worker.
  virtual void discard(Rank self, const Work& work) = 0;
  // Books the work as kept with its worker, and the staleness of its gradient in steps. Where several servers share a
  // gradient, one of them does.
  virtual void keep(Rank self, const Work& work, Step staleness) = 0;

  virtual Bytes bytes_sent() const = 0;
};

}  // namespace syncopate
