#include "algorithms/asynchronous/stale_synchronous.hpp"

#include <functional>
#include <limits>
#include <vector>

#include "algorithms/asynchronous/worker_clocks.hpp"

namespace syncopate {

void StaleSynchronous::run(Worker& worker) const {
  while (worker.receive_model()) worker.send_gradient(worker.compute_step_gradient(Samples::in_turn));
}

void StaleSynchronous::serve(Server& server) const {
  server.set_gradients_per_step(1);
  const double rate_factor = rate_.of_update(1, server.size());
  WorkerClocks clocks(server.size());
  std::vector<Rank> held;  // all are s + 1 ahead of the slowest, so that its next tick releases all
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
    server.accept(*message);
    const double weight = rate_.of_gradient(server.step() - message->step, server.size());
    server.descend(message->gradient / server.micro_batches(), {.rate_factor = rate_factor, .weight = weight});
    server.publish();
    if (!server.budget_left()) return;
    if (!clocks.has(worker)) continue;  // it left before its last gradient came
    if (clocks.tick(worker)) release();
    if (clocks.ahead_of_slowest(worker) <= slack_)
      server.send_model(worker);
    else
      held.push_back(worker);
  }
}

std::unique_ptr<Algorithm> make_stale_synchronous(Settings& settings, const AlgorithmContext&) {
  const std::int64_t slack =
      settings.integer({"slack", "By how many gradients a worker may be ahead of the slowest (s).", "gradients"}, 0,
                       std::numeric_limits<std::int64_t>::max());
  return std::make_unique<StaleSynchronous>(slack, read_update_rate(settings));
}

}  // namespace syncopate
