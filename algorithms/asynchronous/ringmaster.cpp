#include "algorithms/asynchronous/ringmaster.hpp"

#include <deque>
#include <limits>
#include <utility>

#include "algorithms/quorum/gradient_round.hpp"
#include "workers/units/by_rank.hpp"

namespace syncopate {

void Ringmaster::run(Worker& worker) const {
  const Deadline deadline = late_ == Late::stop ? Deadline::until_message() : Deadline();
  while (worker.receive_model())
    if (auto gradient = worker.compute_step_gradient(deadline, Samples::in_turn))
      worker.send_gradient(*std::move(gradient));
}

void Ringmaster::serve(Server& server) const {
  server.set_gradients_per_step(1);
  const double rate_factor = rate_.of_update(1, server.size());
  GradientRound round(server);
  ByRank<Step> computes_at(server.size());
  std::deque<std::pair<Rank, Step>> starts;  // oldest first, so that the largest delay is at the front
  const auto start = [&](Rank worker) {
    computes_at[worker] = server.step();
    starts.emplace_back(worker, server.step());
    server.send_model(worker);
  };
  for (const Rank worker : Ranks(server.size())) start(worker);
  while (const auto message = server.receive_until_all_left()) {
    const double weight = rate_.of_gradient(server.step() - message->step, server.size());
    if (round.take(*message, {.maximum_staleness = Step{delay_threshold_ - 1}}, weight)) {
      round.step(rate_factor);
      if (!server.budget_left()) return;
    }
    // Unless it has been stopped, and the newer model is on its way.
    if (message->step >= computes_at[message->from]) start(message->from);
    for (; !starts.empty(); starts.pop_front()) {
      const auto [worker, version] = starts.front();
      const bool is_over = version < computes_at[worker] || server.has_left(worker);
      if (!is_over && (late_ == Late::finish || server.step() - version < Step{delay_threshold_})) break;
      if (!is_over) start(worker);
    }
  }
}

std::unique_ptr<Algorithm> make_ringmaster(Settings& settings, const AlgorithmContext&) {
  const auto threshold = settings.integer(
      {"delay_threshold", "A gradient counts if the model has had fewer updates since (R).", "updates"}, 1,
      std::numeric_limits<std::int64_t>::max());
  const auto late =
      settings.choice({"late", "Whether what comes to that delay is cancelled or ignored on arrival."},
                      {{"stop", Ringmaster::Late::stop}, {"finish", Ringmaster::Late::finish}}, Ringmaster::Late::stop);
  return std::make_unique<Ringmaster>(threshold, late, read_update_rate(settings));
}

}  // namespace syncopate
