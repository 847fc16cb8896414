#include "algorithms/asynchronous/k_async.hpp"

#include <algorithm>

#include "algorithms/quorum/arrival_prediction.hpp"
#include "algorithms/quorum/gradient_round.hpp"

namespace syncopate {

void KAsync::run(Worker& worker) const {
  while (worker.receive_model()) worker.send_gradient(worker.compute_step_gradient(Samples::in_turn));
}

void KAsync::serve(Server& server) const {
  server.set_gradients_per_step(gradients_);
  GradientRound round(server);
  while (server.budget_left()) {
    server.send_model(Receivers::waiting);  // at first to all, then to those whose gradients made the update
    for (int needed = std::min(gradients_, server.workers_left()); round.gradients() < needed;) {
      if (const auto message = server.receive())
        round.take(*message, any_gradient, rate_.of_gradient(server.step() - message->step, server.size()));
      else
        needed = std::min(gradients_, server.workers_left(round.givers()));
    }
    if (round.gradients() == 0) return;  // all workers have left
    round.step(rate_.of_update(round.gradients(), server.size()));
  }
}

// The card. Nobody waits where K = 1, and where K = N all begin together.
Forecast KAsync::forecast(const PredictionInput& input) const {
  if (gradients_ == 1) return predict_own_pace(1, input);
  const double around_s = input.gradient_message_s() + input.message_s();
  Forecast forecast = gradients_ == input.workers
                          ? predict_quorum(gradients_, true, {around_s, input.on_server_link_s()}, input)
                          : predict_arrivals_with_late_work(gradients_, input);
  // Each worker has a gradient in every (N / K)-th update on average.
  for (Prediction& prediction : forecast.predictions)
    prediction.mean_staleness = static_cast<double>(input.workers) / gradients_ - 1;
  return forecast;
}

std::unique_ptr<Algorithm> make_k_async(Settings& settings, const AlgorithmContext& context) {
  const auto gradients =
      settings.integer({"gradients", "How many workers' gradients make an update (K); k-batch-async takes any."}, 1,
                       Stated(context.workers, "workers"));
  return std::make_unique<KAsync>(static_cast<int>(gradients), read_update_rate(settings));
}

}  // namespace syncopate
