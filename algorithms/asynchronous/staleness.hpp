// How far an asynchronous update goes: by the number of its gradients, and by how stale each of them is.
// Source:  Zhang, Gupta, Lian and Liu 2016, "Staleness-aware Async-SGD for Distributed Deep Learning": 1/tau; the code
//          of Ringmaster's authors (Maranjyan, Tyurin and Richtarik 2025): N/max(N, tau).
// Shapes:  scalars only.   Units: staleness (tau) in updates between a gradient's model and its application.
// Cost:    one call per gradient.
// Differs: 1/(tau + 1) is the variant of other authors; with 1/tau stale by 0 and by 1 weigh the same. A weight is one
//          of the learning rate, as in the paper: weight decay is multiplied by it too, and an adaptive optimizer
//          cannot undo it. An update along several gradients goes along their weighted mean at their mean weight, which
//          for plain SGD is each at its own rate. What is reported is the rate without weights. Budget and schedule go
//          by whole steps of the experiment file: an update of c gradients has the schedule's rate of step
//          floor(updates x c / N), so that the schedule is a staircase of N / c updates each.
// Checks:  all weights are 1 at tau = 0 and fall, the last beyond tau = N alone; "linear" makes N / c updates move as
//          far as one step of N; recursions with weight decay, momentum and AdamW in double precision.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "workers/base/units.hpp"
#include "workers/config/settings.hpp"

namespace syncopate {

enum class StalenessWeight {
  none,              // 1
  inverse,           // 1/tau, and 1 for tau = 0
  inverse_plus_one,  // 1/(tau + 1)
  beyond_workers,    // N/max(N, tau)
};
double staleness_weight(StalenessWeight rule, Step staleness, int workers);

// What an update along the mean of c workers' gradients makes of the schedule's learning rate, which is that of
// a step along all N.
enum class RateScaling {
  linear,  // times c / N: as far per sample as a step along all
  none,    // as it is; with a staleness weight the two come to much the same, since E[tau] = (N - 1) / c
};

struct UpdateRate {
  StalenessWeight weight = StalenessWeight::none;
  RateScaling scaling = RateScaling::linear;

  // Of one gradient.
  double of_gradient(Step staleness, int workers) const { return staleness_weight(weight, staleness, workers); }
  double of_update(int gradients, int workers) const {
    return scaling == RateScaling::linear ? static_cast<double>(gradients) / workers : 1.0;
  }
};

// Keys `staleness_weight` = "none" | "1/tau" | "1/(tau+1)" | "N/max(N,tau)", and `rate_scaling` = "linear" | "none".
// The default of the latter is "none" where a weight is chosen: 1/tau would reduce the rate twice, and the code that
// has N/max(N, tau) takes the rate as it is given.
UpdateRate read_update_rate(Settings& settings);

// The clocks of all workers: how many gradients each has delivered, and how many the slowest.
// Cost: constant per tick, whatever the number of workers (amortised over the values that the minimum passes).
class WorkerClocks {
 public:
  explicit WorkerClocks(int workers);

  // Of a worker that is still there. Both return whether the minimum has changed.
  bool tick(Rank worker);
  bool remove(Rank worker);  // its clock counts no more

  bool has(Rank worker) const { return clock_[worker].has_value(); }
  std::int64_t slowest() const { return slowest_; }
  std::int64_t ahead_of_slowest(Rank worker) const { return *clock_[worker] - slowest_; }

 private:
  bool raise_slowest();

  ByRank<std::optional<std::int64_t>> clock_;  // none: removed
  std::deque<int> workers_at_;                 // [i]: workers whose clock is slowest_ + i; never empty
  std::int64_t slowest_ = 0;
};

}  // namespace syncopate
