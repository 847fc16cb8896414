// The interface between methods and clusters. Worker and Server (worker.hpp, server.hpp) use it; SimulatedCluster
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

  // Runs the programs of all participants of this process to their end. `serve` is null for methods without a server. A
  // worker that ends before the others has left: servers are told (receive), partial all-reduces go on without it, and
  // a collective that needs it fails with that reason. Throws RunFailure, Interrupted, or a program's exception.
  virtual RunTotals run(const Program& work, const Program& serve) = 0;

  // The programs make the calls below, each as participant `self`.
  virtual Time now(Rank self) const = 0;

  // As far as `self` knows: how many workers have not ended (a region's server counts its own, the global one the
  // regions' servers), and whether a participant has.
  virtual int workers_left(Rank self) = 0;
  virtual bool has_left(Rank self, Rank other) const = 0;

  // The gradient of the micro-batch `samples`, or nothing if the deadline stopped it, or if an outage took the worker's
  // state (see has_lost_state). `slot` decides how long it takes; the two differ where a worker computes another's
  // micro-batch, or one that was dropped before.
  virtual std::optional<Gradient> compute_gradient(Rank self, const ModelStatePtr& at, const MicroBatch& slot,
                                                   const MicroBatch& samples, const Deadline& deadline) = 0;

  // Whether an outage (workers/time/outages.hpp) may take this worker's state.
  virtual bool may_lose_state(Rank) const { return false; }
  // Whether one has in the last compute_gradient. The worker is up again; the micro-batch was lost. Ask once.
  virtual bool has_lost_state(Rank) { return false; }

  // The sum over micro-batches first.index .. first.index + count - 1. Not for a worker that may lose its state.
  virtual Gradient compute_gradients(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count);

  // The sleep that follows a micro-batch, where delays are sleeps (workers/time/compute_time.hpp); else none.
  virtual Duration sleep_after(Rank, const MicroBatch&) const { return {}; }

  // Collectives. All workers (not the servers) take part, or those of a group, with the same description. A started one
  // goes on while its worker computes: it ends at the last start plus the network's cost. Collectives of the same
  // members go one after another, in the order in which all of them start them. Finish each once, in any order; that
  // waits for its end. A worker that leaves without finishing holds up nobody.
  virtual StartedCollective start(Rank self, Collective&& what, const Contribution& contribution, Place place) = 0;
  virtual CollectiveResult finish(Rank self, StartedCollective&& started, Place place) = 0;
  // Both at once.
  virtual CollectiveResult perform(Rank self, Collective&& what, const Contribution& contribution, Place place) {
    return finish(self, start(self, std::move(what), contribution, place), place);
  }

  // The same, with results in the place of the parts. `numbers`, of one length on all workers, are summed too (4 bytes
  // each).
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
  AgreedProgress broadcast(Rank self, ModelStatePtr& state, Rank root, Place place) {
    CollectiveResult result = perform(self, Collective::broadcast(std::move(state), root), {}, place);
    state = std::move(result.model);
    return result.agreement;
  }
  // Makes a row of steps.csv if somebody contributes.
  AgreedProgress barrier(Rank self, Place place, const Contribution& contribution = {}) {
    return perform(self, Collective::barrier(), contribution, place).agreement;
  }
  // Everybody's numbers in the order of the ranks; of one length on all workers.
  SharedNumbers all_gather(Rank self, std::span<const double> numbers, Place place) {
    return perform(self, Collective::all_gather(numbers), {}, place).numbers;
  }

  // Books a worker's steps, for methods without collectives and servers. Equal steps make one row. Takes no time.
  virtual void report_steps(Rank self, const Contribution& contribution) = 0;

  // Messages arrive in (time, sequence) order. Sending does not block. receive gives the first one, of `from` alone if
  // that is given; nothing once `until` has passed, or when nobody is left who could send. It gives a server nothing,
  // too, when a worker (or a server that it serves) has left since it last asked or was told.
  virtual void send(Rank self, Rank to, Message&& message, Place place) = 0;
  virtual ReceivedMessage receive(Rank self, std::optional<Rank> from, Time until, Place place) = 0;

  // Books the work as discarded, and its micro-batches as dropped, with its worker.
  virtual void discard(Rank self, const BookedTime& work) = 0;
  // Books the work as kept with its worker, and the gradient's staleness. Of servers that share it one calls this.
  virtual void keep(Rank self, const BookedTime& work, Step staleness) = 0;

  virtual Bytes bytes_sent() const = 0;
};

// A deadlock: every participant, and where in which method it waits.
struct Deadlock {
  Time at{};
  bool after_loss = false;  // somebody is in a micro-batch that never ends: the method waits for those, as it should
  std::map<std::string, std::vector<int>> workers_by_state{};  // ranks in ascending order
  std::vector<std::pair<std::string, std::string>> servers{};  // name and state
};

// "waiting in receive for worker 3 (algorithms/quorum/backup_workers.hpp:20)", where `from` is the participant that it
// waits for, if that is known; "ended" if there is no place.
std::string what_it_waits_for(const Place* place, const std::string& from = "");

std::string explain(const Deadlock& deadlock);

std::string explain_end_of_clock(std::string_view who);

// A method's path within the project; for other files the last two parts of the path.
std::string short_path(std::string_view path);

}  // namespace syncopate
