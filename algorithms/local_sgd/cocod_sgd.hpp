// CoCoD-SGD: local steps continue while the models at the last round's end are averaged. Then each worker adds the
// steps that it has taken meanwhile to the average.
// Source:  Shen et al. 2019, "Faster Distributed Deep Net Training: Computation and Communication Decoupled Stochastic
//          Gradient Descent".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats per round, hidden by the next; two more vectors of P floats per worker.
// Differs: as in the authors' code, model = mean(s) + (model - s), where s is the model that the worker has sent. At
//          the end of the first round a worker keeps its model; after the last round all take the average of their
//          models. The evaluated model is the received average, which is one round old. BatchNorm statistics stay with
//          their worker. Every round has H steps; the code's first round has H + 1.
// Checks:  one worker, or workers that compute the same, equal serial SGD; a recursion in double precision.
#pragma once

#include "algorithms/local_sgd/local_rounds.hpp"

namespace syncopate {

class CocodWorker final : public LateRule::OfWorker {
 public:
  using OfWorker::OfWorker;

  void end_round(AverageUnderWay& average, const ModelStatePtr&, double) override {
    if (average.is_under_way()) {
      const ModelStatePtr mean = average.finish(), own = worker_.model();
      publish(worker_, policies_, mean);
      worker_.set_model(worker_.combine({{1, mean}, {1, own}, {-1, sent_}}, own));
      common_ = mean;
    }
    sent_ = worker_.model();
    average.start(sent_, common_);
  }

 private:
  ModelStatePtr sent_{}, common_ = worker_.model();
};

inline LateRule make_cocod_rule() { return {.begin = begin_late<CocodWorker>(), .held_vectors = 1}; }

inline std::unique_ptr<Algorithm> make_cocod_sgd(Settings& settings, const AlgorithmContext& context) {
  RoundChoices choices{.period = read_sync_period(settings, context), .late = make_cocod_rule()};
  choices.policies = read_buffer_policies(settings, context);
  return std::make_unique<LocalRounds>(std::move(choices));
}

}  // namespace syncopate
