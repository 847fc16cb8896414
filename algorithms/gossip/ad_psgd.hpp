// Asynchronous decentralised SGD (AD-PSGD): a worker mixes its model half and half with one random neighbour at a time,
// and steps along a gradient that was taken at an earlier model of its own. Nobody waits for anybody.
// Source:  Lian et al. 2018, "Asynchronous Decentralized Parallel Stochastic Gradient Descent".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per exchange one model each way, at most one exchange per step of an active worker; N - 1 models at the very
//          end, for what is evaluated.
// Differs: a partner answers between two of its micro-batches, and not in their middle, as a communication thread of
//          its own does in released codes: the more micro-batches a step has, the sooner. An active worker goes on with
//          its steps meanwhile, and asks anew once it has its answer; `overlap_steps` bounds for how many steps, and
//          with 0 the mixing comes before the step is taken, as in the paper's X W - gamma g. That makes what it has by
//          then older: half of the difference of the two models that were sent is added to it, which is the paper's
//          average where nothing has changed, and keeps the mean of all models in any case. All micro-batches of a step
//          are taken at the model that it began with, whatever comes meanwhile; weight decay and the norms of
//          layer-wise optimizers are those of the mixed model, which is stepped from. Active workers ask and passive
//          ones answer, so that no two wait for each other: by default the odd and the even ranks (as in
//          facebookresearch/stochastic_gradient_push; that the paper has such a graph we have not established), all
//          pairs of which are neighbours, or those of a graph with two sides. An exchange with a worker that has left
//          is none; one that is down answers when it is up. One that loses its state goes on from what it was sent last
//          (gossip.hpp), and takes half of the answer that is under way, if there is one. The paper's own proof, step
//          and weights could not be read.
// Checks:  one worker equals SGD bit for bit; two equal workers whose exchanges end within a step equal D-PSGD; the
//          mean of all models is preserved under any delays; messages and times of equal workers; the last worker's sum
//          of steps is the run's time.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "algorithms/gossip/gossip.hpp"
#include "algorithms/gossip/pair_exchanges.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct PairOptions {
  std::optional<Step> overlap_steps{};  // for how many steps an answer may be under way; none: for any number
  std::shared_ptr<const TwoSides> sides = nullptr;  // null: even ranks and odd ones
  OwnModels evaluated = OwnModels::mean;
};

class AdPsgd : public Algorithm {
 public:
  explicit AdPsgd(PairOptions options = {}) : options_(std::move(options)) {}

  void run(Worker& worker) const override;
  Traits traits() const override { return {.sends_to_neighbours = true, .exchanged_whole = models_of_neighbours}; }
  Forecast forecast(const PredictionInput& input) const override;

 private:
  PairOptions options_;
};

std::unique_ptr<Algorithm> make_ad_psgd(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
