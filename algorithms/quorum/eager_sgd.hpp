// Eager SGD: all-reduces that take place when the first worker arrives (solo), or a random one that all have agreed
// on (majority: on average half have arrived). Who is not there contributes nothing, and catches up later.
// Source:  Li et al. 2020, "Taming Unbalanced Training Workloads in Deep Learning with Partial Collective Operations".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats per step, whoever takes part; one more per average.
// Differs: the mean is over all N workers: one that contributes nothing counts as zero. Three variants, of which
//          each part can be chosen. "paper" (default; our understanding, not confirmed): a late gradient is
//          added to the next contribution; of the sums that it has missed a late worker gets the newest alone, since
//          there is one receive buffer, so that models drift apart; they are averaged now and then (how often is this
//          project's choice). "released" (our reading of the ResNet code): a late gradient is overwritten, models are
//          not averaged, with solo every 32nd round waits for all. "replayed" (this project's): nothing is lost; a late
//          worker steps along every sum in order, so that all models are equal after as many steps. Here a late worker
//          comes to the newest round next, there it may go through each. Samples of rounds that a worker has missed are
//          skipped (backup_workers.hpp).
// Checks:  hand-worked timelines of both kinds of late workers; every round synchronous equals synchronous SGD bit for
//          bit; (N + 1) / 2 contributors on average (majority); step times of solo under exponential times.
#pragma once

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct EagerOptions {
  enum class Activation { solo, majority };
  Activation activation = Activation::solo;
  LateGradient late = LateGradient::accumulate;
  MissedSums missed = MissedSums::newest;
  Step synchronous_every{0};  // 0: never
  Step average_every{0};      // 0: never; nor once a worker has left
};

class EagerSgd : public Algorithm {
 public:
  explicit EagerSgd(const EagerOptions& options) : options_(options) {}

  void run(Worker& worker) const override;
  Traits traits() const override {
    return {.exchanged_whole =
                "a sum is that of those who have come, stale gradients among them, and compressed sums are "
                "exchanged among all"};
  }
  Forecast forecast(const PredictionInput&) const override {
    return Forecast::none("who is there when a round begins depends on who was late for those before");
  }

 private:
  // Whether every so many rounds end with this one.
  static bool ends(Step every, Step round);
  Activation activation(const Worker& worker, Step round) const;

  EagerOptions options_;
};

std::unique_ptr<Algorithm> make_eager_sgd(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
