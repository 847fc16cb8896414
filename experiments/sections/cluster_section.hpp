// The tables [cluster], [[delays]], [[outages]] and [network]: who works, how long a micro-batch takes, and what
// communication costs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "experiments/sections/experiment.hpp"
#include "workers/delays/trace_section.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

class BatchLengths;

struct ClusterSection {
  ClusterPlan plan;
  bool workers_known = true;       // false: what is written is a fault, and plan.workers stands in for it
  std::vector<TraceLimit> traces;  // to be checked against the budget
  double usual_micro_batch_s = 0;  // the slowest worker's, with its delays; 0: it is still to be measured
};

// Checks the traces' lengths against the budget, and cuts the budget where a trace with end = "stop" ends.
void fit_budget_to_traces(ClusterSection& cluster, Budget& budget);

// What the lengths of a cluster's micro-batches are, and whether they are computed padded; asked for where
// cluster.micro_batch_s is a table of costs. Null lengths after a fault.
struct PlannedLengths {
  std::shared_ptr<const BatchLengths> lengths;
  bool pads = false;
};
using LengthsOf = std::function<PlannedLengths(int workers, int micro_batches)>;

// Has no other null members; faults are collected by `root`. `seed` is that of the delays; with `finite_means` a delay
// without an expected value is a fault.
ClusterSection read_cluster(Settings& root, std::uint64_t seed, bool finite_means, const LengthsOf& lengths_of);

}  // namespace syncopate
