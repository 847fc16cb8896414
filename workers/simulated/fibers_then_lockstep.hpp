// Time-only runs of methods whose workers act alike from some step on, such as DropCompute once it has found its
// threshold: on fibers until the collective that ends that step, in lockstep from then on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "workers/cluster/forwarding_cluster.hpp"
#include "workers/simulated/lockstep_cluster.hpp"
#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {

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
// the same course, as lockstep_cluster.hpp says; none: they never do.
std::unique_ptr<Cluster> make_simulated_cluster(const SimulatedOptions& options, std::optional<Step> alike_from);

}  // namespace syncopate
