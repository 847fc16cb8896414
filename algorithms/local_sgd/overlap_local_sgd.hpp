// Overlap-Local-SGD: workers are pulled towards a common anchor, which follows their average one round late, optionally
// with a momentum.
// Source:  Wang, Liang, Joshi 2020, "Overlap Local-SGD: An Algorithmic Approach to Hide Communication Delays in
//          Distributed SGD".
// Shapes:  gradient, parameters, anchor, momentum: (P,) flat float32.   Units: mixing and momentum have none.
// Cost:    one all-reduce of P floats per round, hidden by the next; two more vectors of P floats per worker.
// Differs: as in the authors' code, a worker at a round's end waits for the anchor z, then sets model = (1 - mixing)
//          model + mixing z and v = momentum v + (model - z), and starts the average z = mean(z + v). Each worker has
//          its own v; the mean of all v is a momentum of the anchor. The code keeps v in units of the learning rate
//          (`momentum_units = "rate"`, the default; here v is multiplied by this round's mean rate / the last round's);
//          "model" keeps v in units of the model. We do not know the paper's values: `mixing` must be given, and
//          `momentum` is 0 by default. The first anchor is the initial model. Evaluations use the anchor; the last
//          one uses the anchor after the last round's average. BatchNorm statistics stay with their worker. Every round
//          has H steps; the code's first round has H + 1.
// Checks:  with mixing = 0 and no momentum workers train alone, and their average is the result; with mixing = 1 no
//          model moves; a recursion in double precision.
#pragma once

#include "algorithms/local_sgd/local_rounds.hpp"

namespace syncopate {

struct OverlapLocalOptions {
  enum class MomentumUnits { rate, model };
  double mixing = 0;    // alpha
  double momentum = 0;  // beta
  MomentumUnits momentum_units = MomentumUnits::rate;
};

class AnchoredWorker final : public LateRule::OfWorker {
 public:
  AnchoredWorker(Worker& worker, const OuterOptimizer& outer, const StatePolicies& policies,
                 const OverlapLocalOptions& options)
      : OfWorker(worker, outer, policies), options_(options), anchor_(worker.model()) {}

  void end_round(AverageUnderWay& average, const ModelStatePtr&, double rate) override {
    const double kept = kept_momentum(rate);
    if (average.is_under_way()) anchor_ = average.finish();
    const ModelStatePtr own = worker_.model();
    worker_.set_model(worker_.combine({{1 - options_.mixing, own}, {options_.mixing, anchor_}}, own));
    std::vector<WeightedState> sum = {{1, worker_.model()}, {-1, anchor_}};
    if (velocity_) sum.push_back({kept, velocity_});
    velocity_ = worker_.combine(sum, own);
    average.start(worker_.combine({{1, anchor_}, {1, velocity_}}, own), anchor_);
    publish(worker_, policies_, anchor_);
  }

 private:
  // The factor of v, given the round's mean learning rate. A round without steps, or at rate 0, does not rescale v.
  double kept_momentum(double rate) {
    double kept = options_.momentum;
    if (rate <= 0 || options_.momentum_units == OverlapLocalOptions::MomentumUnits::model) return kept;
    if (rate_before_ > 0) kept *= rate / rate_before_;
    rate_before_ = rate;
    return kept;
  }

  OverlapLocalOptions options_;
  ModelStatePtr anchor_, velocity_{};
  double rate_before_ = 0;
};

inline LateRule make_anchor_rule(const OverlapLocalOptions& options) {
  return {.begin = begin_late<AnchoredWorker>(options), .held_vectors = 2};
}

inline OverlapLocalOptions read_overlap_local(Settings& settings) {
  using Units = OverlapLocalOptions::MomentumUnits;
  OverlapLocalOptions options;
  options.mixing = settings.number({"mixing", "Share of the anchor in a worker's model after each round (alpha)."},
                                   Range::between(0, 1));
  options.momentum = settings.number({"momentum", "Share of the anchor's last step that the next one keeps (beta)."},
                                     Range::below_one(), 0.0);
  options.momentum_units = settings.choice({"momentum_units", "Whether momentum is rescaled as the rate changes."},
                                           {{"rate", Units::rate}, {"model", Units::model}}, Units::rate);
  return options;
}

inline std::unique_ptr<Algorithm> make_overlap_local_sgd(Settings& settings, const AlgorithmContext& context) {
  RoundChoices choices{.period = read_sync_period(settings, context)};
  choices.late = make_anchor_rule(read_overlap_local(settings));
  choices.policies = read_buffer_policies(settings, context);
  return std::make_unique<LocalRounds>(std::move(choices));
}

}  // namespace syncopate
