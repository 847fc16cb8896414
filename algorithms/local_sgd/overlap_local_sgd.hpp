// Overlap-Local-SGD: workers are pulled towards a common anchor, which follows their average one round late, with a
// momentum of its own if it is given one.
// Source:  Wang, Liang, Joshi 2020, "Overlap Local-SGD: An Algorithmic Approach to Hide Communication Delays in
//          Distributed SGD".
// Shapes:  gradient, parameters, anchor, momentum: (P,) flat float32.   Units: mixing and momentum without one.
// Cost:    one all-reduce of P floats per round, hidden by the next; two more vectors of P floats per worker.
// Differs: after its code. At a round's end: wait for the anchor z; model = (1 - mixing) model + mixing z; v = momentum
//          v + (model - z); start z = mean(z + v). Each worker has a v of its own, whose mean is a momentum of the
//          anchor. The code keeps v in units of the learning rate (`momentum_units = "rate"`, the default; here by the
//          mean rates of the two rounds); "model" leaves it as it is. The paper's values are not established: `mixing`
//          must be given, `momentum` is 0. The first anchor is the initial model. Evaluated is the anchor, after the
//          last round that of its average. BatchNorm statistics stay with their worker. Every round has H steps; the
//          code's first one has H + 1, since it asks for the step's number before it counts it.
// Checks:  mixing = 0 without momentum: workers that train alone, and at the end their average; mixing = 1: nothing
//          moves; a recursion in double precision.
#pragma once

#include "algorithms/local_sgd/overlapped_rounds.hpp"

namespace syncopate {

struct OverlapLocalOptions {
  enum class MomentumUnits { rate, model };
  double mixing = 0;    // alpha
  double momentum = 0;  // beta
  MomentumUnits momentum_units = MomentumUnits::rate;
};

class OverlapLocalSgd : public OverlappedRounds {
 public:
  OverlapLocalSgd(std::shared_ptr<const SyncPeriod> period, const OverlapLocalOptions& options,
                  const StatePolicies& policies)
      : OverlappedRounds(std::move(period), policies), options_(options) {}

  void run(Worker& worker) const override {
    train_together(worker, period_->synchronous_steps(), policies_);
    AverageUnderWay average(worker, policies_);
    ModelStatePtr anchor = worker.model(), velocity;
    double rate_before = 0;
    while (average.rounds_left()) {
      const double kept = kept_momentum(average.take_round(*period_), rate_before);
      if (average.is_under_way()) anchor = average.finish();
      const ModelStatePtr own = worker.model();
      worker.set_model(worker.combine({{1 - options_.mixing, own}, {options_.mixing, anchor}}, own));
      std::vector<WeightedState> sum = {{1, worker.model()}, {-1, anchor}};
      if (velocity) sum.push_back({kept, velocity});
      velocity = worker.combine(sum, own);
      average.start(worker.combine({{1, anchor}, {1, velocity}}, own), anchor);
      publish(worker, policies_, anchor);
    }
    if (average.is_under_way()) worker.set_model(average.finish());
    publish(worker, policies_);
  }

 private:
  // A round without steps, or at rate 0, leaves it as it is.
  double kept_momentum(double rate, double& rate_before) const {
    double kept = options_.momentum;
    if (rate <= 0 || options_.momentum_units == OverlapLocalOptions::MomentumUnits::model) return kept;
    if (rate_before > 0) kept *= rate / rate_before;
    rate_before = rate;
    return kept;
  }

  OverlapLocalOptions options_;
};

inline std::unique_ptr<Algorithm> make_overlap_local_sgd(Settings& settings, const AlgorithmContext& context) {
  using Units = OverlapLocalOptions::MomentumUnits;
  auto period = read_sync_period(settings, context);
  OverlapLocalOptions options;
  options.mixing = settings.number({"mixing", "How far a worker is pulled to the anchor after each round (alpha)."},
                                   Range::between(0, 1));
  options.momentum = settings.number({"momentum", "Share of the anchor's last step that the next one keeps (beta)."},
                                     Range{.low = 0, .high = 1, .low_open = false, .high_open = true}, 0.0);
  options.momentum_units = settings.choice({"momentum_units", "Whether that step changes with the learning rate."},
                                           {{"rate", Units::rate}, {"model", Units::model}}, Units::rate);
  return std::make_unique<OverlapLocalSgd>(std::move(period), options, read_overlapped_policies(settings, context));
}

}  // namespace syncopate
