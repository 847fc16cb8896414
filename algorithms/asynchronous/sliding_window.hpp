// Sliding window: asynchronous SGD in which no gradient is overtaken by more than tau gradients that started later.
// Source:  our own; it is bounded delay (bounded_delay.hpp, Li et al. 2014) with single gradients as tasks.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per gradient P floats up and P down, and the waits.
// Differs: gradients are numbered t = 0, 1, ... in the order in which the server sends models. Gradient t starts once
//          all gradients up to t - tau - 1 are applied, on the worker that has waited longest. So at most tau + 1 are
//          in progress. Stale synchronous parallel (SSP) bounds a worker's lead over another worker; this rule bounds
//          every gradient's lead over the oldest one. With N equal workers tau = s N is similar to SSP's slack s, but a
//          slow worker blocks the others after tau gradients of all workers together.
// Checks:  tau = 0 is sequential SGD in which workers take turns; tau = inf equals asynchronous SGD bit for bit;
//          staleness is never above 2 tau.
#pragma once

#include <deque>
#include <functional>
#include <limits>
#include <set>

#include "algorithms/asynchronous/staleness.hpp"

namespace syncopate {

class SlidingWindow : public GradientPerModel {
 public:
  // maximum_delay: tau, at least 0.
  explicit SlidingWindow(std::int64_t maximum_delay, const UpdateRate& rate = {})
      : maximum_delay_(maximum_delay), rate_(rate) {}

  void serve(Server& server) const override {
    server.set_gradients_per_step(1);
    std::int64_t next = 0;               // number of the next gradient
    std::set<std::int64_t> in_progress;  // numbers of gradients
    ByRank<std::optional<std::int64_t>> number_of(server.size());
    std::deque<Rank> idle;
    const auto may_start = [&] { return in_progress.empty() || next - *in_progress.begin() <= maximum_delay_; };
    // Also called for a worker that has left, since it may never have begun its gradient.
    const std::function<void(Rank)> end_number_of = [&](Rank worker) {
      if (const auto number = std::exchange(number_of[worker], std::nullopt)) in_progress.erase(*number);
    };
    for (const Rank worker : Ranks(server.size())) idle.push_back(worker);
    while (true) {
      for (; !idle.empty() && may_start(); idle.pop_front()) {
        if (server.has_left(idle.front())) continue;
        in_progress.insert(next);
        number_of[idle.front()] = next++;
        server.send_model(idle.front());
      }
      const auto message = server.receive_until_all_left(end_number_of);
      if (!message) return;
      step_along(server, *message, rate_.of_single(server, *message));
      if (!server.budget_left()) return;
      end_number_of(message->from);
      idle.push_back(message->from);
    }
  }

 private:
  std::int64_t maximum_delay_;
  UpdateRate rate_;
};

inline std::unique_ptr<Algorithm> make_sliding_window(Settings& settings, const AlgorithmContext&) {
  const std::int64_t maximum_delay = settings.integer(
      {"maximum_delay", "How many earlier gradients may be pending when a gradient starts (tau).", "gradients"}, 0,
      std::numeric_limits<std::int64_t>::max());
  return std::make_unique<SlidingWindow>(maximum_delay, read_update_rate(settings));
}

}  // namespace syncopate
