// EDiT and A-EDiT: Local SGD with an outer optimizer, along pseudo-gradients that are weighed by their norms, those of
// outliers left out, and clipped. Rounds end after H steps (EDiT), or after a time at each worker's own pace (A-EDiT).
// Source:  Cheng et al. 2025, "EDiT: A Local-SGD-Based Efficient Distributed Training Method for Large Language
//          Models"; the rules after its authors' code. The paper's own settings, equation numbers and tables are not
//          established here. Defaults are those that the code has for parts which it leaves off; its minimum_steps are
//          100, with 600 s.
// Shapes:  gradient, parameters, outer momentum: (P,) flat float32.   Units: sync_seconds in seconds.
// Cost:    per round an all-reduce of P floats, and before it an all-gather of 8 bytes per module and worker, of 32
//          more per worker where weights or the round's end go by steps. One more vector of P floats per worker, or two
//          with an outer momentum. A round of A-EDiT takes sync_seconds, the longest rest of a step that is then under
//          way, and the communication.
// Differs: modules are tensors, as in the code's data-parallel path, or the whole model (`scope`); in its sharded path
//          they are layers. There the clip is per module, in the other path of the whole (`clip_scope`). Modules are
//          synchronised together, not one by one during the next forward pass. Synchronous steps first are the
//          post-local rule's, or `warmup_steps` of A-EDiT. No round ends with the last of them: the first one has H
//          steps, or takes its time; the code synchronises at once when its warm-up is over, in both forms.
//          Each worker goes by its own clock, in the code by the mean of all; by which the paper's rounds go is not
//          established, and the mean is no option. Time counts from the end of the last
//          synchronisation; in the code from the worker's own arrival at it (`counted_from = "arrival"`), so that
//          waiting and communication are part of it, and fast workers may come down to a step per round. Steps that a
//          worker is behind the fastest in a round of A-EDiT count as dropped: all go on with the same step, and the
//          schedule goes by the fastest; each takes its data in turn.
//          Where all workers are outliers, the module stays as it was, its outer momentum too; where none has a finite
//          norm, the run has diverged. BatchNorm statistics are
//          plain means, as are moments where they are averaged; a worker that is an outlier in all modules brings the
//          statistics of the round's beginning. Its own moments stay as they are.
// Norms:   the softmax is not free of scale. Where norms differ by much less than T all weigh alike, by much more the
//          shortest takes all. More steps make longer norms, so that the fast workers of A-EDiT weigh less, unless
//          step_share says otherwise: its shares are of the round's steps, in the code of all since the run began. A
//          worker whose norms stay long is an outlier for good. Without a model nobody is weighed, and time is what it
//          is with one.
// Outages: a worker that loses its state goes on from the round's beginning; what is left of its round is weighed as
//          any. Statistics and outer momentum are the same on all workers, so that it gets them with the model. One
//          that has used up its data ends the round at once, and the run fails where the others need it after that.
// Checks:  without outliers, at T = inf and a plain outer rate of 1 Local SGD bit for bit, with Nesterov DiLoCo; equal
//          times c and sync_seconds = H c give EDiT bit for bit; the recursion in double precision.
#pragma once

#include <memory>
#include <utility>

#include "algorithms/local_sgd/edit_round.hpp"
#include "algorithms/local_sgd/local_sgd.hpp"

namespace syncopate {

class Edit : public Algorithm {
 public:
  explicit Edit(EditOptions options) : options_(std::move(options)) {}

  void run(Worker& worker) const override;
  // It weighs by what is computed, but its time and its rounds do not depend on that.
  Traits traits() const override {
    return {.follows_clock = options_.is_timed(),
            .judges_alone = true,
            .publishes_rounds = true,
            .exchanged_whole =
                "pseudo-gradients have other weights in each round, and a compressed average counts all alike"};
  }
  Forecast forecast(const PredictionInput& input) const override;
  std::optional<Communicated> communication(const CommunicationInput& input) const override;

 private:
  void take_steps(Worker& worker, Time counted_from, RoundWork& work) const;
  ModelStatePtr clip(const Worker& worker, const ModelStatePtr& last, const Penalty& penalty) const;
  ModelStatePtr take_outer_step(const Worker& worker, const OuterStep& at, const Penalty& penalty,
                                ModelStatePtr& momentum) const;

  EditOptions options_;
};

std::unique_ptr<Algorithm> make_edit(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
