// For clusters that wrap another one: each call goes on to it, so that they say only what differs.
#pragma once

#include <utility>

#include "workers/cluster/cluster.hpp"

namespace syncopate {

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
