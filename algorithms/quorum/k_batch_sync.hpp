// K-batch-sync SGD: a server steps along any K gradients of its newest version; each worker may send several. Gradients
// in progress at the update are cancelled. With K = S, Rennala SGD's batch size, this is Rennala SGD.
// Source:  Dutta et al. 2018, "Slow and Stale Gradients Can Win the Race"; Tyurin and Richtarik 2023 (Rennala SGD).
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per step N models down, and K gradients or more up, P floats each.
// Differs: a gradient that was sent before the update and arrives after it is dropped. All workers compute, even if
//          K < N. Rennala's code then simulates only the K workers that finish first. That gives the same gradients,
//          because no other worker finishes before the K-th. Workers send each gradient separately, not a sum.
//          Nothing makes workers wait: if they compute more gradients than the server's link carries, gradients of old
//          versions queue up before the server, each step waits for more than the last, and the run ends as failed.
// Checks:  K = N and equal workers equal synchronous SGD bit for bit; under exponential times of mean mu a step takes
//          K mu / N; constant times t_i: the first t at which the floor(t / t_i) add up to K.
#pragma once

#include "algorithms/method/gradient_round.hpp"

namespace syncopate {

class KBatchSync : public FreshGradients {
 public:
  explicit KBatchSync(int gradients) : gradients_(gradients) {}

  void serve(Server& server) const override {
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

 private:
  int gradients_;  // K
};

inline std::unique_ptr<Algorithm> make_k_batch_sync(Settings& settings, const AlgorithmContext& context) {
  const auto gradients = settings.integer({"gradients", "How many gradients make a step (K)."}, 1, 1'000'000);
  return std::make_unique<KBatchSync>(static_cast<int>(context.work.check(settings, "gradients", gradients)));
}

}  // namespace syncopate
