// OrMo: asynchronous SGD with momentum. Consecutive updates form buckets of N. The momentum acts once per bucket, as it
// would once per step of synchronous SGD. A gradient enters the momentum as if it had arrived in the bucket in which
// its worker started, however late it is.
// Source:  Shi et al. 2024 (NeurIPS 2024, arXiv 2407.19234).
//   For a gradient g that is j buckets late:  u <- u + beta^j eta g;  x <- x - eta g (1 + beta + ... + beta^j)
//   When a bucket ends:                       x <- x - beta u;  u <- beta u
// Shapes:  gradient, parameters, momentum u: (P,) flat float32.
// Cost:    as asynchronous SGD; the server keeps two more vectors, and adds two per gradient.
// Differs: we have not read the paper's text. The formulas follow from a figure's caption; where a bucket ends is our
//          choice: at the first gradient of the next one, so the closing move is in the model sent after that gradient.
//          The momentum sums steps, not gradients, so a new learning rate does not rescale it. It therefore includes
//          weight decay, and an optimizer's own momentum, which should be 0. The paper's variant with a delay-adaptive
//          rate (OrMo-DA) is not implemented, because its formula is not established.
// Checks:  beta = 0 is asynchronous SGD bit for bit; one worker is SGD with momentum; an independent event simulation.
#pragma once

#include "algorithms/asynchronous/staleness.hpp"

namespace syncopate {

struct OrmoOptions {
  double momentum = 0;           // beta
  std::optional<Step> bucket{};  // updates per bucket; none: N
  UpdateRate rate{};
};

class Ormo : public GradientPerModel {
 public:
  explicit Ormo(const OrmoOptions& options) : options_(options) {}

  void serve(Server& server) const override {
    server.set_gradients_per_step(1);
    const double rate_factor = options_.rate.of_update(1, server.size()), beta = options_.momentum;
    const std::int64_t size = options_.bucket.value_or(Step{server.size()}).value();
    ModelStatePtr u;  // null: zero
    server.send_model(Receivers::all);
    while (const auto message = server.receive_until_all_left()) {
      const std::int64_t update = server.step().value(), late = update / size - message->step.value() / size;
      if (u && update % size == 0) {
        server.set_model(server.combine({{1, server.model()}, {-beta, u}}, server.model()));
        u = server.combine({{beta, u}});
      }
      double share = 1, steps = 1;  // beta^j and 1 + beta + ... + beta^j
      for (std::int64_t bucket = 0; bucket < late && share > 0; ++bucket) steps += share *= beta;
      const ModelStatePtr before = server.model();
      step_along(server, *message, {.rate_factor = rate_factor, .weight = steps});
      if (beta > 0 && before) {
        std::vector<WeightedState> sum = {{share / steps, before}, {-share / steps, server.model()}};
        if (u) sum.push_back({1, u});
        u = server.combine(sum);
      }
      if (!server.budget_left()) return;
      server.send_model(message->from);
    }
  }

  Traits traits() const override {
    return {.servers = 1, .takes_data_in_turn = true, .sends_gradients = true, .held = {.states = 2}};
  }

 private:
  OrmoOptions options_;
};

inline std::unique_ptr<Algorithm> make_ormo(Settings& settings, const AlgorithmContext& context) {
  OrmoOptions options;
  options.momentum =
      settings.number({"momentum", "Share of the momentum that remains after a bucket (beta)."}, Range::below_one());
  options.bucket = settings.integer({"bucket", "Consecutive updates in a bucket.", "updates"}, 1, 1'000'000'000,
                                    Stated(context.workers, "workers"));
  options.rate = read_rate_scaling(settings);
  return std::make_unique<Ormo>(options);
}

}  // namespace syncopate
