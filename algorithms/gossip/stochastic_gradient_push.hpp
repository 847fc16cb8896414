// Stochastic gradient push (SGP): each worker sends half of what it has to one other per step, a further one each
// time, and weights carried along (push-sum) correct for who has got more than others.
// Source:  Assran et al. 2019, "Stochastic Gradient Push for Distributed Deep Learning".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per step and worker one model and its weight sent, one received; N - 1 models at the very end, for what is
//          evaluated.
// Differs: kept are z = x / w and w, not x and w, so that x - eta g is a step of eta / w from z, and a mixture the
//          mean of models weighted by w: the same in exact arithmetic. To a worker that has left nothing is sent;
//          what was on its way there is lost, x and w alike; a worker whose senders have all left loses its
//          weight in time, and the run ends with that reason. With `overlap_steps` a step goes on without messages
//          sent up to so many steps before, and takes in what has come. Evaluated is worker 0's z during the
//          run, at its end the mean of all that are left, weighted by w.
// Checks:  one worker equals SGD bit for bit; the sums of w and of x are preserved; without gradients 2^k workers
//          agree after k steps.
#pragma once

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class StochasticGradientPush : public Algorithm {
 public:
  explicit StochasticGradientPush(Step overlap = 0) : overlap_(overlap) {}

  void run(Worker& worker) const override;
  Traits traits() const override { return {.follows_clock = overlap_ > Step{0}}; }
  Forecast forecast(const PredictionInput&) const override {
    return Forecast::none("workers wait for neighbours, who wait for theirs");
  }

 private:
  void check_weight(const Worker& worker, double weight) const;

  Step overlap_;  // 0: every step waits for its message
};

std::unique_ptr<Algorithm> make_stochastic_gradient_push(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
