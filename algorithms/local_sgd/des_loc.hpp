// DES-LOC: Local SGD that averages the parameters and each moment of the optimizer at periods of their own: what
// changes slowly is averaged rarely.
// Source:  Iacob et al. 2026, "DES-LOC: Desynced Low Communication Adaptive Optimizers for Training Foundation Models".
// Shapes:  gradient, parameters, each moment: (P,) flat float32.   Units: periods in steps.
// Cost:    per step (1 / K_x + 1 / K_u + 1 / K_v) P floats in all-reduces: with the recommended K_u = 3 K_x and
//          K_v = 6 K_x half of what Local Adam (all K_x) moves. Workers meet every K_x steps, if the others are
//          multiples of it. It waits for stragglers as Local SGD does.
// Differs: no code of its authors was at hand. A method of its own, since a meeting of local-sgd is always an average
//          of the parameters. What falls on one step is one all-reduce. What is averaged after t steps is what step t
//          begins with, so that a moment's mean takes its place before the update; the second moment is averaged as it
//          is, not its root. Not established: whether a step that begins with an average of the parameters has its
//          gradient at them or at what the worker had before (here at them), and bias correction (here as the run's
//          optimizer has it). Gradients are clipped where `training.clip_norm` says so. The last step averages the
//          parameters. A worker that loses its state takes up what it had at the last meeting: where that was of
//          moments alone, parameters of its own.
// Checks:  K_x = K_u = K_v equals Local SGD with averaged moments, and moments that are never averaged Local SGD with
//          kept ones, bit for bit; AdamW's recursion in double precision; bytes in closed form.
#pragma once

#include <array>

#include "algorithms/local_sgd/moment_schedule.hpp"
#include "algorithms/local_sgd/state_policy.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class DesLoc : public Algorithm {
 public:
  // Of the policies that of the buffers counts.
  DesLoc(Step parameters, const std::array<Step, 2>& moments, const StatePolicies& policies = {})
      : schedule_(parameters, moments, policies.average.buffers), policies_(policies) {}

  void run(Worker& worker) const override;
  Traits traits() const override {
    return {.follows_clock = false,
            .cycle = schedule_.cycle(),
            .same_course_from = 0,
            .judges_alone = true,
            .publishes_rounds = true,
            .takes_data_in_turn = true,
            .exchanged_whole = "moments are averaged as well, after steps of their own"};
  }
  Forecast forecast(const PredictionInput& input) const override;
  std::optional<Communicated> communication(const CommunicationInput& input) const override;

 private:
  MomentSchedule schedule_;
  StatePolicies policies_;
};

std::unique_ptr<Algorithm> make_des_loc(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
