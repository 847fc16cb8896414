// Stochastic gradient push (SGP): each worker sends parts of what it has along a graph, half of it to one other per
// step and a further one each time, and weights carried along (push-sum) correct for who has got more than others.
// Source:  Assran et al. 2019, "Stochastic Gradient Push for Distributed Deep Learning"; facebookresearch/
//          stochastic_gradient_push, gossip_module/distributed.py.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per exchange and worker one model and its weight sent to each receiver, of whom there is one unless another
//          graph is given, and as many received; an exchange per step, with overlap per `overlap_steps` steps or,
//          "released", up to once per step; N - 1 models at the very end.
// Differs: kept are z = x / w and w, not x and w, so that x - eta g is a step of eta / w from z, and a mixture the
//          mean of models weighted by w: the same in exact arithmetic. The graph is the paper's directed exponential
//          one unless another is given, of which only the columns of W need to sum to 1. To a worker that has left
//          nothing is sent; what was on its way there is lost, x and w alike; a worker whose senders have all left
//          loses its weight in time, and the run ends with that reason. One that loses its state goes on from the last
//          z that it was sent (gossip.hpp), with w = 1 as a new worker: its own x and w are lost, and with them what it
//          had taken and not mixed; what is under way to it stays. So the sum of w, N before, changes by 1 less the
//          lost w, and what is evaluated is still the mean by the weights there are. Overlap is in two forms, of which
//          the first is our reading of the paper's second algorithm. "paper": a worker sends in every tau-th step, and
//          in the next one that sends waits for what it was sent in the last; who comes next in the graph goes by
//          exchanges, not by steps, so that all are met. "released": before each gradient a worker takes in its
//          message, if it is there or tau steps old (synch_freq = tau - 1), and sends anew only then; ranks come to
//          different numbers of exchanges, and what is sent to one that has ended is lost.
// Checks:  one worker equals SGD bit for bit; the sums of w and of x are preserved; without gradients 2^k workers
//          agree after k steps; both forms of overlap against implementations in double precision; on the complete
//          graph all agree after each step.
#pragma once

#include <optional>

#include "algorithms/gossip/gossip.hpp"
#include "algorithms/gossip/graph.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct PushOptions {
  enum class Overlap { paper, released };
  Step overlap_steps{0};  // tau; 0: every step waits for its message
  Overlap overlap = Overlap::paper;
  OwnModels evaluated = OwnModels::mean;
  GossipGraphPtr graph = nullptr;  // null: one receiver in turn, 1, 2, 4, ... ranks further
};

class StochasticGradientPush : public Algorithm {
 public:
  explicit StochasticGradientPush(const PushOptions& options = {}) : options_(options) {}

  void run(Worker& worker) const override;
  Traits traits() const override {
    return {.sends_to_neighbours = true,
            .follows_clock = options_.overlap_steps > Step{0},
            .exchanged_whole = models_of_neighbours};
  }
  Forecast forecast(const PredictionInput& input) const override;
  std::optional<Communicated> communication(const CommunicationInput& input) const override;

 private:
  GossipGraphPtr graph_of(int workers) const { return options_.graph ? options_.graph : one_peer_exponential(workers); }

  PushOptions options_;
};

std::unique_ptr<Algorithm> make_stochastic_gradient_push(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
