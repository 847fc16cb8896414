// Ringmaster ASGD: asynchronous SGD that uses only gradients whose delay is below R. With late = "stop" (default), a
// computation whose delay reaches R is cancelled, and its worker starts again from the newest model.
// Source:  Maranjyan, Tyurin and Richtarik 2025, "Ringmaster ASGD: The First Asynchronous SGD with Optimal Time
//          Complexity"; the stops are as in its authors' code.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: delay in updates since a computation's start.
// Cost:    per gradient P floats up and P down, and P more down per stop; nobody waits.
// Differs: if the server stops a worker whose gradient is in flight, that gradient is dropped on arrival, and the
//          worker gets no model beyond the one that stopped it. An ignored gradient does not advance the version. The
//          learning rate is that of asynchronous SGD (`rate_scaling`). It is not established which R and which rate the
//          paper's theory and experiments use, so R must be given.
// Checks:  R = 1 without stops equals asynchronous SGD that keeps only staleness 0, and a large R plain asynchronous
//          SGD, bit for bit; no gradient with a delay of R or more is used; timelines of stops.
#pragma once

#include <deque>
#include <limits>

#include "algorithms/asynchronous/staleness.hpp"

namespace syncopate {

class Ringmaster : public GradientPerModel {
 public:
  // delay_threshold: R, at least 1. late: whether computations that reach the delay R are cancelled, or continue and
  // have their gradients ignored on arrival.
  explicit Ringmaster(std::int64_t delay_threshold, LateWork late = LateWork::cancel, const UpdateRate& rate = {})
      : delay_threshold_(delay_threshold), late_(late), rate_(rate) {}

  void run(Worker& worker) const override { send_gradient_per_model(worker, late_, Samples::in_turn); }

  void serve(Server& server) const override {
    server.set_gradients_per_step(1);
    ByRank<Step> computes_at(server.size());
    std::deque<std::pair<Rank, Step>> starts;  // worker and version; oldest first, so the largest delay is at the front
    const auto start = [&](Rank worker) {
      computes_at[worker] = server.step();
      starts.emplace_back(worker, server.step());
      server.send_model(worker);
    };
    for (const Rank worker : Ranks(server.size())) start(worker);
    while (const auto message = server.receive_until_all_left()) {
      const bool is_used = step_along(server, *message, rate_.of_single(server, *message),
                                      {.maximum_staleness = Step{delay_threshold_ - 1}});
      if (is_used && !server.budget_left()) return;
      // If the worker was stopped, a newer model is already on its way to it.
      if (message->step >= computes_at[message->from]) start(message->from);
      for (; !starts.empty(); starts.pop_front()) {
        const auto [worker, version] = starts.front();
        const bool is_over = version < computes_at[worker] || server.has_left(worker);
        if (!is_over && (late_ == LateWork::finish || server.step() - version < Step{delay_threshold_})) break;
        if (!is_over) start(worker);
      }
    }
  }

  Traits traits() const override {
    Traits traits = GradientPerModel::traits();
    traits.takes_data_in_turn = late_ == LateWork::finish;
    traits.rejects_gradients = true;
    return traits;
  }

 private:
  std::int64_t delay_threshold_;
  LateWork late_;
  UpdateRate rate_;
};

inline std::unique_ptr<Algorithm> make_ringmaster(Settings& settings, const AlgorithmContext&) {
  const auto threshold =
      settings.integer({"delay_threshold",
                        "A gradient counts if the model had fewer updates since the gradient's start (R).", "updates"},
                       1, std::numeric_limits<std::int64_t>::max());
  const auto late =
      settings.choice({"late", "Whether gradients with this delay or more are cancelled, or ignored on arrival."},
                      {{"stop", LateWork::cancel}, {"finish", LateWork::finish}}, LateWork::cancel);
  return std::make_unique<Ringmaster>(threshold, late, read_update_rate(settings));
}

}  // namespace syncopate
