#include "algorithms/quorum/k_batch_sync.hpp"

#include "algorithms/quorum/arrival_prediction.hpp"
#include "algorithms/quorum/gradient_round.hpp"

namespace syncopate {

void KBatchSync::run(Worker& worker) const {
  while (worker.receive_model())
    while (auto gradient = worker.compute_step_gradient(Deadline::until_message(), Samples::in_turn))
      worker.send_gradient(*std::move(gradient));
}

void KBatchSync::serve(Server& server) const {
  server.set_gradients_per_step(gradients_);
  GradientRound round(server);
  while (server.budget_left()) {
    server.send_model(Receivers::all);
    while (round.gradients() < gradients_) {
      const auto message = server.receive_until_all_left();
      if (!message) return;
      round.take(*message, {.maximum_staleness = 0});
    }
    round.step();
  }
}

Forecast KBatchSync::forecast(const PredictionInput& input) const { return predict_arrivals(gradients_, input); }

std::unique_ptr<Algorithm> make_k_batch_sync(Settings& settings, const AlgorithmContext& context) {
  const auto gradients = settings.integer({"gradients", "How many gradients make a step (K)."}, 1, 1'000'000);
  return std::make_unique<KBatchSync>(static_cast<int>(context.work.check(settings, "gradients", gradients)));
}

}  // namespace syncopate
