// The tables [cluster], [[delays]], [[outages]] and [network]: who works, how long a micro-batch takes, and what
// communication costs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "experiments/sections/experiment.hpp"
#include "workers/delays/trace_section.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

struct ClusterSection {
  int workers = 1;
  bool workers_known = true;  // false: what is written is a fault, and `workers` stands in for it
  int micro_batches = 1;
  bool to_be_measured = false;                   // micro_batch_s = "measured": its time is not known yet
  std::optional<double> measured_micro_batch_s;  // micro_batch_s, where it is a result of measuring
  std::vector<std::optional<Step>> data_of;  // one per worker: steps that its own data last; empty: all last for ever
  Pace pace = Pace::inject;
  std::vector<TraceLimit> traces;  // to be checked against the budget
  std::shared_ptr<const ComputeTime> compute_time;
  std::shared_ptr<const Pauses> pauses;       // null: there are none
  std::shared_ptr<const OutagePlan> outages;  // null: there are none
  double usual_micro_batch_s = 0;             // the slowest worker's, with its delays; 0: it is still to be measured
  std::shared_ptr<const NetworkModel> network;
};

// Checks the traces' lengths against the budget; one that is to stop where a trace ends is cut there.
void fit_budget_to_traces(ClusterSection& cluster, Budget& budget);

// Has no other null members; faults are collected by `root`. `seed` is that of the delays; with `finite_means` a delay
// without an expected value is a fault.
ClusterSection read_cluster(Settings& root, std::uint64_t seed, bool finite_means = false);

}  // namespace syncopate
