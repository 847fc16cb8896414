// n-softsync: the server steps along the mean of every c = floor(N / n) gradients, from any workers. K-batch-async SGD
// is the same with a given c = K, which may be above N.
// Source:  Zhang, Gupta, Lian and Liu 2016, "Staleness-aware Async-SGD for Distributed Deep Learning"; K-batch-async:
//          Dutta et al. 2018, "Slow and Stale Gradients Can Win the Race".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per gradient P floats up and P down; nobody waits.
// Differs: one server holds all parameters. The method is not synchronous even for n = 1, since a fast worker may get
//          the same version twice and give two gradients to one update. Once all workers have left, a last update uses
//          the remaining gradients.
// Checks:  n = N equals asynchronous SGD bit for bit; E[staleness] = (N - 1) / c; each gradient in a mean has its own
//          staleness weight.
#pragma once

#include "algorithms/asynchronous/staleness.hpp"
#include "algorithms/method/gradient_round.hpp"

namespace syncopate {

class Softsync : public GradientPerModel {
 public:
  // gradients: c or K, the number of gradients that make an update.
  explicit Softsync(int gradients, const UpdateRate& rate = {}) : gradients_(gradients), rate_(rate) {}

  void serve(Server& server) const override {
    server.set_gradients_per_step(gradients_);
    const double rate_factor = rate_.of_update(gradients_, server.size());
    GradientRound round(server);
    server.send_model(Receivers::all);
    while (const auto message = server.receive_until_all_left()) {
      round.take(*message, any_gradient, rate_.of_gradient(server.step() - message->step, server.size()));
      if (round.gradients() == gradients_) {
        round.step(rate_factor);
        if (!server.budget_left()) return;
      }
      server.send_model(message->from);  // even if this worker has already had this version
    }
    if (round.gradients() > 0) round.step(rate_factor);
  }

 private:
  int gradients_;
  UpdateRate rate_;
};

inline std::unique_ptr<Algorithm> make_softsync(Settings& settings, const AlgorithmContext& context) {
  const auto splitting =
      static_cast<int>(settings.integer({"splitting", "An update takes floor(workers / splitting) gradients (n)."}, 1,
                                        Stated(context.workers, "workers")));
  return std::make_unique<Softsync>(context.workers / splitting, read_update_rate(settings));
}

inline std::unique_ptr<Algorithm> make_k_batch_async(Settings& settings, const AlgorithmContext& context) {
  const auto gradients = settings.integer({"gradients", "How many gradients make an update (K)."}, 1, 1'000'000);
  context.work.check(settings, "gradients", gradients);
  return std::make_unique<Softsync>(static_cast<int>(gradients), read_update_rate(settings));
}

}  // namespace syncopate
