// Pseudo-asynchronous Local SGD (PALSGD): at each local step a worker either trains or, with probability p, is pulled
// towards the model of the last synchronisation, which costs neither a gradient nor communication. After H steps an
// outer optimizer steps along the average, as in DiLoCo.
// Source:  Naganuma et al. 2025, "Pseudo-Asynchronous Local SGD: Robust and Efficient Data-Parallel Training"; the
//          rules after its authors' code.
// Shapes:  gradient, parameters, outer momentum: (P,) flat float32.
// Cost:    one all-reduce of P floats per H steps; one more vector of P floats per worker. A pulled step takes no time.
// Differs: theta <- theta - (eta / p) lambda (theta - Theta) pulls all tensors, where the code pulls the first of each
//          group of the optimizer alone; whether the published runs did is not established. Each worker draws for
//          itself (`draws = "own"`); in the code all draw alike ("shared"). A pulled step's samples are left out of
//          this epoch, and count as dropped, so that a run of equal steps sees 1 - p of the samples: compare at equal
//          samples or time. The outer model is the one that all have stored, not the newest. Moments of the inner
//          optimizer are not touched by a pull. Here the first local step may be a pull, and each round has H steps; in
//          the code the first local step always trains, and rounds end where the number of the step plus one is a
//          multiple of H, so that the first one is a step shorter. In its synchronous steps the code averages the
//          optimizer's moments as well; here they are equal anyway, since all step along one sum.
// Checks:  p = 0 equals DiLoCo bit for bit; lambda = 0 DiLoCo that skips steps; the recursion in double precision; the
//          mean round and its spread against the binomial law.
#pragma once

#include <memory>

#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/local_sgd/outer_optimizer.hpp"

namespace syncopate {

struct PullOptions {
  double probability = 0.2;  // p, in [0, 1)
  double strength = 0.5;     // lambda
  Drawn draws = Drawn::alone;
};

class PalSgd : public Algorithm {
 public:
  PalSgd(std::shared_ptr<const SyncPeriod> period, std::shared_ptr<const OuterOptimizer> outer, const PullOptions& pull,
         const StatePolicies& policies = {})
      : period_(std::move(period)), outer_(std::move(outer)), pull_(pull), policies_(policies) {}

  void run(Worker& worker) const override;
  Traits traits() const override {
    return {.follows_clock = false,
            .judges_alone = true,
            .publishes_rounds = true,
            .averages_models = true,
            .averages_moments = policies_.average.averaged_vectors(2) > 1};
  }
  Forecast forecast(const PredictionInput& input) const override;
  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    return communicated_in_rounds(*period_, policies_.average, input);
  }

 private:
  bool is_pulled(const Worker& worker) const;

  std::shared_ptr<const SyncPeriod> period_;
  std::shared_ptr<const OuterOptimizer> outer_;
  PullOptions pull_;
  StatePolicies policies_;
};

std::unique_ptr<Algorithm> make_palsgd(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
