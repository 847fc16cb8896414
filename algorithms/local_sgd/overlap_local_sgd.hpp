// Overlap-Local-SGD: workers are pulled towards an anchor that all share; the anchor follows their average one round
// late, with a momentum of its own if it is given one.
// Source:  Wang, Liang, Joshi 2020, "Overlap Local-SGD: An Algorithmic Approach to Hide Communication Delays in
//          Distributed SGD".
// Shapes:  gradient, parameters, anchor, momentum: (P,) flat float32.   Units: mixing and momentum without one.
// Cost:    one all-reduce of P floats per round, hidden by the next; two more vectors of P floats per worker.
// Differs: after its code. At a round's end: wait for the anchor z; model = (1 - mixing) model + mixing z;
//          v = momentum v + (model - z); start z = mean(z + v). Each worker has a v of its own, whose mean is a
//          momentum of the anchor. The code keeps v in units of the learning rate, so that it grows and shrinks with it
//          (`momentum_units = "rate"`, the default; here by the mean rates of the two rounds); "model" leaves it as it
//          is. The values of the paper's experiments are not established: `mixing` must be given, `momentum` is 0. The
//          first anchor is the initial model. Evaluated is the anchor; after the last round, the one that its average
//          makes. A worker's BatchNorm statistics stay its own. Every round has H steps; the code asks
//          for the step's number before it counts it, so that its first round has H + 1.
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
  void run(Worker& worker) const override;

 private:
  double kept_momentum(double rate, double& rate_before) const;

  OverlapLocalOptions options_;
};

std::unique_ptr<Algorithm> make_overlap_local_sgd(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
