// Stale synchronous parallel (SSP): asynchronous SGD in which a worker more than s gradients ahead of the slowest
// waits. Nothing is dropped.
// Source:  Ho et al. 2013, "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per gradient P floats up and P down, and the waits.
// Differs: the server holds back the model, while in the paper a worker waits in its read. A read returns the newest
//          model, never an older one from a cache. A worker's clock counts its applied gradients, so it starts its
//          gradient k = 0, 1, ... once all clocks are at least k - s. A worker that has left blocks nobody; a worker
//          that never answers blocks the others.
// Checks:  s = inf equals asynchronous SGD bit for bit; s = 0 is a barrier; no worker that is more than s ahead of the
//          slowest starts a gradient.
#pragma once

#include <functional>
#include <limits>

#include "algorithms/asynchronous/staleness.hpp"

namespace syncopate {

class StaleSynchronous : public GradientPerModel {
 public:
  // slack: s, at least 0.
  explicit StaleSynchronous(std::int64_t slack, const UpdateRate& rate = {}) : slack_(slack), rate_(rate) {}

  void serve(Server& server) const override {
    server.set_gradients_per_step(1);
    WorkerClocks clocks(server.size());
    std::vector<Rank> held;  // waiting workers; all are s + 1 ahead, so they continue once the minimum clock rises
    const auto release = [&] {
      for (const Rank worker : held)
        if (clocks.has(worker)) server.send_model(worker);
      held.clear();
    };
    const std::function<void(Rank)> on_leave = [&](Rank worker) {
      if (clocks.remove(worker)) release();
    };
    server.send_model(Receivers::all);
    while (const auto message = server.receive_until_all_left(on_leave)) {
      const Rank worker = message->from;
      step_along(server, *message, rate_.of_single(server, *message));
      if (!server.budget_left()) return;
      if (!clocks.has(worker)) continue;  // it left before its last gradient arrived
      if (clocks.tick(worker)) release();
      if (clocks.ahead_of_slowest(worker) <= slack_)
        server.send_model(worker);
      else
        held.push_back(worker);
    }
  }

 private:
  std::int64_t slack_;
  UpdateRate rate_;
};

inline std::unique_ptr<Algorithm> make_stale_synchronous(Settings& settings, const AlgorithmContext&) {
  const std::int64_t slack =
      settings.integer({"slack", "By how many gradients a worker may be ahead of the slowest (s).", "gradients"}, 0,
                       std::numeric_limits<std::int64_t>::max());
  return std::make_unique<StaleSynchronous>(slack, read_update_rate(settings));
}

}  // namespace syncopate
