// The seam between methods and what they run on. Worker and Server (worker.hpp) are written on top
// of it once; SimulatedCluster (virtual clock, all workers in one process) and MpiCluster (wall
// clock, one worker per process) implement it.
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

  // Outages (workers/time/outages.hpp): whether one of this worker's may take its state.
  virtual bool may_lose_state(Rank) const { return false; }
  // Whether one has in the last compute_gradient. The worker is up again; the micro-batch was lost. Asked once.
  virtual bool has_lost_state(Rank) { return false; }

  // The sum over micro-batches first.index .. first.index + count - 1 of a step, without a deadline. Not for a
  // worker that may lose its state.
  virtual Gradient compute_gradients(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count);

  // The sleep that follows a micro-batch, where delays are sleeps (workers/time/compute_time.hpp); else none.
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

// What to say when nobody can go on: every participant, and where in which method it waits.
struct Deadlock {
  Time at{};
  bool after_loss = false;  // somebody is in a micro-batch that never ends: the method waits for those, as it should
  std::map<std::string, std::vector<int>> workers_by_state{};  // ranks in ascending order
  std::vector<std::pair<std::string, std::string>> servers{};  // name and state
};

// "waiting in receive for worker 3 (algorithms/quorum/backup_workers.hpp:20)", where
// `from` is the participant that it waits for, if that is known; "ended" where there is no place.
std::string what_it_waits_for(const Place* place, const std::string& from = "");

std::string explain(const Deadlock& deadlock);

// `who` cannot go on since its clock cannot.
std::string explain_end_of_clock(std::string_view who);

// A method's file as the project has it; of others the last two parts of the path.
std::string short_path(std::string_view path);

// For clusters that wrap another one: each call goes on to it, so that they say only what differs.
class ForwardingCluster : public Cluster {
 public:
  int workers() const override { return wrapped().workers(); }
  Servers servers() const override { return wrapped().servers(); }
  RunTotals run(const Program& work, const Program& serve) override { return wrapped().run(work, serve); }
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
  bool may_lose_state(Rank worker) const override { return wrapped().may_lose_state(worker); }
  bool has_lost_state(Rank worker) override { return wrapped().has_lost_state(worker); }
  Duration sleep_after(Rank worker, const MicroBatch& slot) const override {
    return wrapped().sleep_after(worker, slot);
  }

  StartedCollective start(Rank self, Collective&& what, const Contribution& contribution, Place place) override {
    return wrapped().start(self, std::move(what), contribution, place);
  }
  CollectiveResult finish(Rank self, StartedCollective&& started, Place place) override {
    return wrapped().finish(self, std::move(started), place);
  }
  // `perform` and `all_reduce_sum` are not forwarded: they call start and finish of this cluster, which a wrapper may
  // have changed. One that wants a cluster's faster ways forwards them itself.
  void report_steps(Rank self, const Contribution& contribution) override {
    wrapped().report_steps(self, contribution);
  }

  void send(Rank self, Rank to, Message&& message, Place place) override {
    wrapped().send(self, to, std::move(message), place);
  }
  ReceivedMessage receive(Rank self, std::optional<Rank> from, Time until, Place place) override {
    return wrapped().receive(self, from, until, place);
  }
  void discard(Rank self, const Work& work) override { wrapped().discard(self, work); }
  void keep(Rank self, const Work& work, Step staleness) override { wrapped().keep(self, work, staleness); }
  Bytes bytes_sent() const override { return wrapped().bytes_sent(); }

 protected:
  // It may change while the cluster runs, between two calls.
  virtual Cluster& wrapped() = 0;
  virtual const Cluster& wrapped() const = 0;
};

}  // namespace syncopate
