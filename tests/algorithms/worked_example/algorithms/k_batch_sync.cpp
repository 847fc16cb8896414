#include "algorithms/k_batch_sync.hpp"

namespace syncopate {

void KBatchSync::run(Worker& worker) const {
  while (worker.receive_model())
    while (auto gradient = worker.compute_step_gradient(Deadline::until_message(), Samples::in_turn))
      worker.send_gradient(*std::move(gradient));
}

void KBatchSync::serve(Server& server) const {
  server.set_gradients_per_step(gradients_);
  while (server.budget_left()) {
    server.send_model(Receivers::all);
    Gradient sum;
    while (sum.micro_batches() < gradients_ * server.micro_batches()) {
      const auto message = server.receive_until_all_left();
      if (!message) return;
      if (server.accept(*message, {.maximum_staleness = 0})) sum += message->gradient;
    }
    server.descend(sum / static_cast<double>(sum.micro_batches()));
    server.publish();
  }
}

std::unique_ptr<Algorithm> make_k_batch_sync(Settings& settings, const AlgorithmContext&) {
  const auto gradients = settings.integer({"gradients", "How many gradients make a step (K)."}, 1, 1'000'000);
  return std::make_unique<KBatchSync>(static_cast<int>(gradients));
}

}  // namespace syncopate
