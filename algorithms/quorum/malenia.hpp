// Malenia SGD: each worker computes gradients at the same model again and again, until every worker has at least one;
// the step is along the mean of the workers' mean gradients. Gradients in progress are cancelled.
// Source:  Tyurin and Richtarik 2023, "Optimal Time Complexities of Parallel Stochastic Optimization Methods Under a
//          Fixed Computation Model", as its authors' later code has it.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per step N models down, and at least N gradients up, P floats each; as long as the slowest worker's
//          gradient.
// Differs: the paper's round goes on until a harmonic mean of the workers' counts is large enough; that rule is known
//          from memory only and is not offered. A worker that has left without a gradient is left out.
// Checks:  workers with equal constant times are synchronous SGD; workers with different data and speeds converge to
//          the mean of the minima; an independent event simulation.
#pragma once

#include "algorithms/method/gradient_round.hpp"

namespace syncopate {

class Malenia : public FreshGradients {
 public:
  void serve(Server& server) const override {
    server.set_gradients_per_step(server.size());
    while (server.budget_left()) {
      server.send_model(Receivers::all);
      ByRank<MeanOfWorker> means(server.size());
      std::int64_t micro_batches = 0;
      const auto are_missing = [&] {
        for (const Rank worker : Ranks(server.size()))
          if (means[worker].count == 0 && !server.has_left(worker)) return true;
        return micro_batches == 0;
      };
      do {
        const auto message = server.receive_until_all_left();
        if (!message) return;
        if (!server.accept(*message, {.maximum_staleness = 0})) continue;
        means[message->from].add(server, message->gradient);
        micro_batches += message->gradient.micro_batches();
      } while (are_missing());
      server.descend(mean_of_means(means, server.micro_batches()), {.micro_batches = micro_batches});
      server.publish();
    }
  }
};

inline std::unique_ptr<Algorithm> make_malenia(Settings&, const AlgorithmContext&) {
  return std::make_unique<Malenia>();
}

}  // namespace syncopate
