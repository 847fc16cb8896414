// Rescaled asynchronous SGD: asynchronous SGD in which a worker's learning rate is proportional to the time that its
// gradients take, so that slow workers contribute as much per second as fast ones. With different data per worker,
// asynchronous SGD converges to a point near the fast workers' minima; this does not.
// Source:  Mahran, Maranjyan and Richtarik 2026, "Rescaled ASGD".
//   eta_i = eta tau_i (1 / N) sum_j 1 / tau_j,  tau_i: worker i's time from one model to the next
// Shapes:  gradient, parameters: (P,) flat float32.   Units: tau in seconds.
// Cost:    as asynchronous SGD.
// Differs: the paper's normalisation is not established; the one above keeps the sum of all rates per second. tau_i is
//          the mean over the worker's earlier cycles, with communication and outages, unless `cycle_s` gives it.
//          Workers without a complete cycle, or that have left, are not in the sum, and a first gradient has the plain
//          rate. The factor is part of the learning rate, so it also scales weight decay and adaptive optimizers'
//          steps.
// Checks:  equal times are asynchronous SGD; workers with different data and speeds converge to the mean of the minima,
//          where asynchronous SGD does not; an independent event simulation.
#pragma once

#include <fmt/format.h>

#include "algorithms/asynchronous/staleness.hpp"

namespace syncopate {

class RescaledSgd : public GradientPerModel {
 public:
  // cycle_s: tau_i by rank; empty: measured.
  explicit RescaledSgd(std::vector<double> cycle_s = {}, const UpdateRate& rate = {})
      : cycle_s_(std::move(cycle_s)), rate_(rate) {}

  void serve(Server& server) const override {
    server.set_gradients_per_step(1);
    const double rate_factor = rate_.of_update(1, server.size());
    ByRank<Cycles> cycles(server.size());
    const auto send = [&](Rank worker) {
      cycles[worker].begun = server.now();
      server.send_model(worker);
    };
    for (const Rank worker : Ranks(server.size())) send(worker);
    while (const auto message = server.receive_until_all_left()) {
      Cycles& own = cycles[message->from];
      const double weight = weight_of(server, message->from, cycles);
      own.seconds += to_seconds(server.now() - own.begun);
      ++own.count;
      step_along(server, *message, {.rate_factor = rate_factor, .weight = weight});
      if (!server.budget_left()) return;
      send(message->from);
    }
  }

 private:
  struct Cycles {
    Time begun{};
    double seconds = 0;  // all complete cycles together
    std::int64_t count = 0;
  };

  double weight_of(const Server& server, Rank worker, const ByRank<Cycles>& cycles) const {
    const auto tau = [&](Rank rank) {
      if (!cycle_s_.empty()) return cycle_s_[static_cast<std::size_t>(rank.value)];
      return cycles[rank].count > 0 ? cycles[rank].seconds / static_cast<double>(cycles[rank].count) : 0;
    };
    if (tau(worker) == 0) return 1;
    double per_second = 0;
    int known = 0;
    for (const Rank rank : Ranks(cycles.size())) {
      if (tau(rank) == 0 || server.has_left(rank)) continue;
      per_second += 1 / tau(rank);
      ++known;
    }
    return known > 0 ? tau(worker) * per_second / known : 1;
  }

  std::vector<double> cycle_s_;
  UpdateRate rate_;
};

inline std::unique_ptr<Algorithm> make_rescaled_sgd(Settings& settings, const AlgorithmContext& context) {
  std::vector<double> cycle_s =
      settings.numbers({"cycle_s", "Each worker's time from one model to the next, by rank.", "s", "measured"},
                       Range::finite_positive(), std::vector<double>{});
  if (!cycle_s.empty() && context.workers_known && std::ssize(cycle_s) != context.workers) {
    settings.fault("cycle_s", fmt::format("must have one time for each of {} workers", context.workers));
    cycle_s.clear();
  }
  return std::make_unique<RescaledSgd>(std::move(cycle_s), read_rate_scaling(settings));
}

}  // namespace syncopate
