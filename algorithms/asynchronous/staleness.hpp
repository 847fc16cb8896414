// The common part of asynchronous methods: a worker's program, and the learning rate of an update, by the number of its
// gradients and the staleness of each.
// Source:  Zhang, Gupta, Lian and Liu 2016, "Staleness-aware Async-SGD for Distributed Deep Learning": weight 1/tau.
//          Ringmaster's authors (Maranjyan, Tyurin and Richtarik 2025), in their code: weight N/max(N, tau).
// Shapes:  scalars only.   Units: staleness (tau) in updates between a gradient's model and its application.
// Differs: 1/(tau + 1) is the variant of other authors; 1/tau weighs staleness 0 and 1 equally. A weight multiplies the
//          learning rate, as in the paper, so weight decay is weighted, too, and an adaptive optimizer cannot undo the
//          weight. An update goes along the weighted mean of its gradients, and their mean weight is a factor of the
//          rate; for plain SGD each gradient then has its own rate. Reports show the rate without weights. Budget and
//          schedule count whole steps of N gradients: an update along c gradients has the schedule's rate of step
//          floor(earlier updates x c / N), which is the same for several updates if c < N.
// Checks:  all weights are 1 at tau = 0 and fall as tau grows, N/max(N, tau) only beyond tau = N; "linear" makes N / c
//          updates together as long as one step along N gradients; recursions with weight decay, momentum and AdamW in
//          double precision.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "algorithms/method/gradient_round.hpp"

namespace syncopate {

// A method whose workers compute a gradient at each model that they receive. Its serve() decides when a worker gets a
// model, and how the server steps along the gradients.
class GradientPerModel : public Algorithm {
 public:
  void run(Worker& worker) const override { send_gradient_per_model(worker, LateWork::finish, Samples::in_turn); }

  Traits traits() const override {
    return {.servers = 1, .publishes_stepped_models = true, .takes_data_in_turn = true, .sends_gradients = true};
  }
};

enum class StalenessWeight {
  none,              // 1
  inverse,           // 1/tau, and 1 for tau = 0
  inverse_plus_one,  // 1/(tau + 1)
  beyond_workers,    // N/max(N, tau)
};

// The rate of an update along the mean of c gradients. The schedule's rate is for a step along the mean of N gradients.
enum class RateScaling {
  linear,  // the schedule's times c / N: each sample moves the model as far as in a step along N gradients
  none,    // the schedule's; with 1/tau the effect is nearly that of `linear`, since E[tau] = (N - 1) / c
};

struct UpdateRate {
  StalenessWeight weight = StalenessWeight::none;
  RateScaling scaling = RateScaling::linear;

  double of_gradient(Step staleness, int workers) const {
    const auto tau = static_cast<double>(staleness.value());
    switch (weight) {
      case StalenessWeight::none:
        break;
      case StalenessWeight::inverse:
        return 1 / std::max(tau, 1.0);
      case StalenessWeight::inverse_plus_one:
        return 1 / (tau + 1);
      case StalenessWeight::beyond_workers:
        return workers / std::max<double>(workers, tau);
    }
    return 1;
  }
  double of_update(int gradients, int workers) const {
    return scaling == RateScaling::linear ? static_cast<double>(gradients) / workers : 1.0;
  }
  // The options of an update along this gradient alone.
  StepOptions of_single(const Server& server, const Message& message) const {
    return {.rate_factor = of_update(1, server.size()),
            .weight = of_gradient(server.step() - message.step, server.size())};
  }
};

// If the server accepts this gradient, takes a step along it and publishes the model. Returns whether it does.
inline bool step_along(Server& server, const Message& message, const StepOptions& step,
                       const AcceptOptions& options = any_gradient) {
  if (!server.accept(message, options)) return false;
  server.descend(message.gradient / server.micro_batches(), step);
  server.publish();
  return true;
}

inline const Key rate_scaling_key{"rate_scaling",
                                  "Whether the learning rate is multiplied by (gradients in the update) / workers."};

// Reads the keys `staleness_weight` and `rate_scaling`. The default of `rate_scaling` is "none" if a weight is chosen:
// with "linear" 1/tau would reduce the rate twice, and the code with N/max(N, tau) does not scale the rate.
inline UpdateRate read_update_rate(Settings& settings) {
  UpdateRate rate;
  rate.weight = settings.choice(
      {"staleness_weight",
       "Factor of the learning rate for a gradient of staleness tau; for several gradients: the mean factor."},
      {{"none", StalenessWeight::none},
       {"1/tau", StalenessWeight::inverse},
       {"1/(tau+1)", StalenessWeight::inverse_plus_one},
       {"N/max(N,tau)", StalenessWeight::beyond_workers}},
      rate.weight);
  rate.scaling = settings.choice(rate_scaling_key, {{"linear", RateScaling::linear}, {"none", RateScaling::none}},
                                 rate.weight == StalenessWeight::none ? RateScaling::linear : RateScaling::none,
                                 "\"linear\"; \"none\" with a staleness_weight");
  return rate;
}
// Reads only `rate_scaling`, for methods without weights by staleness.
inline UpdateRate read_rate_scaling(Settings& settings) {
  return {.scaling = settings.choice(rate_scaling_key, {{"linear", RateScaling::linear}, {"none", RateScaling::none}},
                                     RateScaling::linear)};
}

// The clocks of all workers, each of which counts the worker's delivered gradients, and the clocks' minimum.
class WorkerClocks {
 public:
  explicit WorkerClocks(int workers) : clock_(workers, 0), workers_at_{{0, workers}} {}

  // Advances the clock of a worker that has not been removed. Returns whether the minimum has changed.
  bool tick(Rank worker) {
    const std::int64_t before = (*clock_[worker])++;
    ++workers_at_[before + 1];
    return leave(before);
  }

  // Removes a worker's clock, which then does not hold the minimum back. Returns whether the minimum has changed.
  bool remove(Rank worker) { return leave(*std::exchange(clock_[worker], std::nullopt)); }

  bool has(Rank worker) const { return clock_[worker].has_value(); }
  std::int64_t slowest() const { return workers_at_.begin()->first; }  // while there are clocks
  std::int64_t ahead_of_slowest(Rank worker) const { return *clock_[worker] - slowest(); }

 private:
  bool leave(std::int64_t time) {
    if (--workers_at_[time] > 0) return false;
    const bool was_slowest = slowest() == time;
    workers_at_.erase(time);
    return was_slowest && !workers_at_.empty();
  }

  ByRank<std::optional<std::int64_t>> clock_;  // none: removed
  std::map<std::int64_t, int> workers_at_;     // how many clocks show each time; no zeros
};

}  // namespace syncopate
