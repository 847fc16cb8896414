// CoCoD-SGD: local steps go on while the last round's models are averaged; a worker adds its steps meanwhile to the
// average.
// Source:  Shen et al. 2019, "Faster Distributed Deep Net Training: Computation and Communication Decoupled Stochastic
//          Gradient Descent".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats per round, hidden by the next; two more vectors of P floats per worker.
// Differs: as its code has it: model = mean(s) + (model - s), with s the model that was sent. At the end of the first
//          round a worker goes on as it is; after the last all take the average of their models. Evaluated is the
//          average that has come back, one round old. BatchNorm statistics stay with their worker. Every round has H
//          steps; the code's first one has H + 1, since it asks for the step's number before it counts it.
// Checks:  one worker, or workers that compute the same, equal serial SGD; a recursion in double precision.
#pragma once

#include "algorithms/local_sgd/overlapped_rounds.hpp"

namespace syncopate {

class CocodSgd : public OverlappedRounds {
 public:
  CocodSgd(std::shared_ptr<const SyncPeriod> period, const StatePolicies& policies)
      : OverlappedRounds(std::move(period), policies) {}

  void run(Worker& worker) const override {
    train_together(worker, period_->synchronous_steps(), policies_);
    AverageUnderWay average(worker, policies_);
    ModelStatePtr sent, common = worker.model();
    while (average.rounds_left()) {
      average.take_round(*period_);
      if (average.is_under_way()) {
        const ModelStatePtr mean = average.finish(), own = worker.model();
        publish(worker, policies_, mean);
        worker.set_model(worker.combine({{1, mean}, {1, own}, {-1, sent}}, own));
        common = mean;
      }
      sent = worker.model();
      average.start(sent, common);
    }
    if (average.is_under_way()) worker.set_model(average.finish());
    publish(worker, policies_);
  }
};

inline std::unique_ptr<Algorithm> make_cocod_sgd(Settings& settings, const AlgorithmContext& context) {
  auto period = read_sync_period(settings, context);
  return std::make_unique<CocodSgd>(std::move(period), read_overlapped_policies(settings, context));
}

}  // namespace syncopate
