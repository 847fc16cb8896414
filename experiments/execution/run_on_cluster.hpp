// A run's cluster and its context, as all who execute runs assemble them.
#pragma once

#include <memory>

#include "results/run/run.hpp"
#include "workers/cluster/run_record.hpp"

namespace syncopate {

// On virtual time. `observer` and `record` may be null; what is given outlives the cluster.
std::unique_ptr<Cluster> make_simulated_cluster(const Run& run, Training& training, RunObserver* observer,
                                                RunRecord* record);

// What the run's participants share. The arguments outlive it.
RunContext context_of(const Run& run, Cluster& cluster, Training& training, RunObserver* observer);

}  // namespace syncopate
