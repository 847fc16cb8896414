// Stochastic gradient push (SGP): each worker sends half of what it has to one other per step, a further one each
// time, and weights carried along (push-sum) correct for who has got more than others.
// Source:  Assran et al. 2019, "Stochastic Gradient Push for Distributed Deep Learning"; facebookresearch/
//          stochastic_gradient_push, gossip_module/distributed.py.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per exchange and worker one model and its weight sent, one received; an exchange per step, with overlap per
//          `overlap_steps` steps or, "released", up to once per step; N - 1 models at the very end.
// Differs: kept are z = x / w and w, not x and w, so that x - eta g is a step of eta / w from z, and a mixture the
//          mean of models weighted by w: the same in exact arithmetic. To a worker that has left nothing is sent;
//          what was on its way there is lost, x and w alike; a worker whose senders have all left loses its
//          weight in time, and the run ends with that reason. Overlap is in two forms, of which the first is our
//          reading of the paper's second algorithm. "paper": a worker sends in every tau-th step, and in the next one
//          that sends waits for what it was sent in the last; who comes next in the graph goes by exchanges, not by
//          steps, so that all are met. "released": before each gradient a worker takes in its message, if it is there
//          or tau steps old (synch_freq = tau - 1), and sends anew only then; ranks come to different numbers of
//          exchanges, and what is sent to one that has ended is lost.
// Checks:  one worker equals SGD bit for bit; the sums of w and of x are preserved; without gradients 2^k workers
//          agree after k steps; both forms of overlap against implementations in double precision.
#pragma once

#include "algorithms/gossip/gossip.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct PushOptions {
  enum class Overlap { paper, released };
  Step overlap_steps{0};  // tau; 0: every step waits for its message
  Overlap overlap = Overlap::paper;
  OwnModels evaluated = OwnModels::mean;
};

class StochasticGradientPush : public Algorithm {
 public:
  explicit StochasticGradientPush(const PushOptions& options = {}) : options_(options) {}

  void run(Worker& worker) const override;
  Traits traits() const override { return {.follows_clock = options_.overlap_steps > Step{0}}; }
  Forecast forecast(const PredictionInput&) const override {
    return Forecast::none("workers wait for neighbours, who wait for theirs");
  }

 private:
  PushOptions options_;
};

std::unique_ptr<Algorithm> make_stochastic_gradient_push(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
