// Time-only runs of methods whose workers act alike from some step on, such as DropCompute once it has found its
// threshold: on fibers until the collective that ends that step, in lockstep from then on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "workers/simulated/lockstep_cluster.hpp"
#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {

class SettlingCluster : public Cluster {
 public:
  SettlingCluster(const SimulatedCluster::Options& options, Step alike_from)
      : options_(options), alike_from_(alike_from), fibers_(options) {}

  RunTotals run(const Program& work, const Program& serve) override;

  int workers() const override { return options_.workers; }
  int servers() const override { return 0; }
  Time now(Rank self) const override { return current().now(self); }
  int workers_left(Rank self) override { return current().workers_left(self); }
  bool has_left(Rank self, Rank worker) const override { return current().has_left(self, worker); }
  std::optional<Gradient> compute_gradient(Rank self, const ModelStatePtr& at, const MicroBatch& slot,
                                           const MicroBatch& samples, const Deadline& deadline) override {
    return current().compute_gradient(self, at, slot, samples, deadline);
  }
  Gradient compute_gradients(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count) override {
    return current().compute_gradients(self, at, first, count);
  }
  StartedCollective start(Rank self, Collective&& what, const Contribution& contribution, Place place) override {
    return current().start(self, std::move(what), contribution, place);
  }
  CollectiveResult finish(Rank self, StartedCollective&& started, Place place) override;
  AgreedProgress all_reduce_sum(Rank self, Gradient& gradient, std::span<double> numbers,
                                const Contribution& contribution, Place place) override;
  std::vector<PartialSum> partial_all_reduce(Rank self, Gradient gradient, const Activation& activation,
                                             LateGradient late, const Contribution& contribution,
                                             Place place) override {
    return current().partial_all_reduce(self, std::move(gradient), activation, late, contribution, place);
  }
  void finish_round(Rank self, const Contribution& part) override { current().finish_round(self, part); }
  void send(Rank self, Rank to, Message&& message, Place place) override {
    current().send(self, to, std::move(message), place);
  }
  ReceivedMessage receive(Rank self, std::optional<Rank> from, Time until, Place place) override {
    return current().receive(self, from, until, place);
  }
  void discard(Rank self, const Work& work) override { current().discard(self, work); }
  void keep(Rank self, const Work& work, Step staleness) override { current().keep(self, work, staleness); }
  Bytes bytes_sent() const override { return current().bytes_sent(); }

 private:
  Cluster& current() { return lockstep_ ? static_cast<Cluster&>(*lockstep_) : fibers_; }
  void settle_after(Rank self, Step step);
  const Cluster& current() const { return lockstep_ ? static_cast<const Cluster&>(*lockstep_) : fibers_; }

  SimulatedCluster::Options options_;
  Step alike_from_;
  std::optional<LockstepCluster> lockstep_;
  SimulatedCluster fibers_;  // is destroyed first: its fibers may still be in calls
};

// What the workers of a run take at the least, with their part of its results: half of what was measured in lockstep
// (470 bytes each) and nearly that on fibers (6,600, most of it pages of their stacks).
std::int64_t least_bytes_of_workers(const SimulatedCluster::Options& options, std::optional<Step> alike_from);

// The fastest cluster that gives the results of SimulatedCluster. alike_from: Algorithm::workers_act_alike_from.
std::unique_ptr<Cluster> make_simulated_cluster(const SimulatedCluster::Options& options,
                                                std::optional<Step> alike_from);

}  // namespace syncopate
