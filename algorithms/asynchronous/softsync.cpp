#include "algorithms/asynchronous/softsync.hpp"

#include "algorithms/quorum/gradient_round.hpp"

namespace syncopate {

void Softsync::run(Worker& worker) const {
  while (worker.receive_model()) worker.send_gradient(worker.compute_step_gradient(Samples::in_turn));
}

void Softsync::serve(Server& server) const {
  const int per_update = gradients_per_update(server.size());
  server.set_gradients_per_step(per_update);
  const double rate_factor = rate_.of_update(per_update, server.size());
  GradientRound round(server);
  server.send_model(Receivers::all);
  while (const auto message = server.receive_until_all_left()) {
    round.take(*message, any_gradient, rate_.of_gradient(server.step() - message->step, server.size()));
    if (round.gradients() == per_update) {
      round.step(rate_factor);
      if (!server.budget_left()) return;
    }
    server.send_model(message->from);  // at once, be it the version that this worker has had already
  }
  if (round.gradients() > 0) round.step(rate_factor);
}

std::unique_ptr<Algorithm> make_softsync(Settings& settings, const AlgorithmContext& context) {
  const auto splitting =
      static_cast<int>(settings.integer({"splitting", "An update takes floor(workers / splitting) gradients (n)."}, 1,
                                        Stated(context.workers, "workers")));
  return std::make_unique<Softsync>(splitting, read_update_rate(settings));
}

std::unique_ptr<Algorithm> make_k_batch_async(Settings& settings, const AlgorithmContext& context) {
  const auto gradients = settings.integer({"gradients", "How many gradients make an update (K)."}, 1, 1'000'000);
  context.work.check(settings, "gradients", gradients);
  return std::make_unique<Softsync>(Softsync::of_gradients(static_cast<int>(gradients), read_update_rate(settings)));
}

}  // namespace syncopate
