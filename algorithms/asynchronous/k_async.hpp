// K-async SGD: a server steps along the mean of the first K gradients, each from another worker, whatever the age of
// their models. These K workers then start from the new model. No work is cancelled.
// Source:  Dutta et al. 2018, "Slow and Stale Gradients Can Win the Race".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per gradient P floats up and P down; a worker that has delivered waits for the update.
// Differs: once fewer than K workers are left, an update takes one gradient of each. The rate of an update along k
//          gradients is k / N of the schedule's, unless `rate_scaling` says otherwise. Each worker clips its gradients.
// Checks:  K = N equals synchronous SGD, and K = 1 asynchronous SGD, bit for bit; under exponential times of mean mu an
//          update takes mu (H_N - H_(N-K)), as in K-sync (H_n: the n-th harmonic number).
#pragma once

#include <algorithm>

#include "algorithms/asynchronous/staleness.hpp"
#include "algorithms/method/gradient_round.hpp"

namespace syncopate {

class KAsync : public GradientPerModel {
 public:
  // gradients: K, in [1, N].
  explicit KAsync(int gradients, const UpdateRate& rate = {}) : gradients_(gradients), rate_(rate) {}

  void serve(Server& server) const override {
    server.set_gradients_per_step(gradients_);
    GradientRound round(server);
    while (server.budget_left()) {
      server.send_model(Receivers::waiting);  // at first all workers, then those whose gradients made the update
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

 private:
  int gradients_;
  UpdateRate rate_;
};

inline std::unique_ptr<Algorithm> make_k_async(Settings& settings, const AlgorithmContext& context) {
  const auto gradients = settings.integer(
      {"gradients",
       "Gradients per update, each from a different worker (K); k-batch-async takes gradients from any workers."},
      1, Stated(context.workers, "workers"));
  return std::make_unique<KAsync>(static_cast<int>(gradients), read_update_rate(settings));
}

}  // namespace syncopate
