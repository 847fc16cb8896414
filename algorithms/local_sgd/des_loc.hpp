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

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/local_sgd/round_prediction.hpp"
#include "algorithms/local_sgd/rounds.hpp"
#include "algorithms/local_sgd/sync_period.hpp"
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

inline void DesLoc::run(Worker& worker) const {
  bool is_shared = true, goes_on = true;
  while (worker.budget_left()) {
    const Step end = worker.step() + worker.steps_left();
    const Step until = worker.step() + schedule_.at(worker.step(), worker.learning_rate(), worker.steps_left());
    const AveragePolicy due = schedule_.due(until, end);
    take_local_steps(worker, until - worker.step());
    goes_on = worker.average_model({.policy = due, .weight = policies_.model_weight()});
    is_shared = due.parameters == StatePolicy::average;
    if (is_shared) publish(worker, policies_);
  }
  if (is_shared || goes_on) return;
  worker.average_model(  // a clock has ended a round of moments
      {.policy = {.buffers = policies_.average.buffers}, .weight = policies_.model_weight()});
  publish(worker, policies_);
}

// Rounds as long as from one meeting to the next, and what each averages beyond one vector.
inline Forecast DesLoc::forecast(const PredictionInput& input) const {
  const Step end = input.steps().value_or(MomentSchedule::never);
  RoundFormulas formulas = rounds_until({}, AveragePolicy(), input);
  formulas.of_normal_sums = "rounds of normal sums";
  formulas.of_sampled_sums = "rounds of sampled sums";
  formulas.further_communication_s = [&, one_s = input.average_s(AveragePolicy())](Step done) {
    return input.average_s(schedule_.due(done, end)) - one_s;
  };
  return predict_rounds(schedule_, formulas, input);
}

inline std::optional<Communicated> DesLoc::communication(const CommunicationInput& input) const {
  Communicated sum;
  for (Step done{}; done < input.steps; ++sum.rounds) {
    done += schedule_.at(done, input.learning_rate.at(done), input.steps - done);
    sum.bytes += input.of_average(schedule_.due(done, input.steps));
  }
  return sum;
}

enum class Periods { multiples, half_life, never };

// Of a moment whose own key is not written.
inline Step usual_period(Periods periods, Step multiple, double beta) {
  if (periods == Periods::multiples) return multiple;
  if (periods == Periods::never) return MomentSchedule::never;
  return Step{std::max<Step::Rep>(1, std::llround(half_life(beta)))};
}

inline std::unique_ptr<Algorithm> make_des_loc(Settings& settings, const AlgorithmContext& context) {
  constexpr Step::Rep most = std::numeric_limits<std::int32_t>::max();
  const Step parameters =
      settings.integer({"period", "From one average of the parameters to the next (K_x).", "steps"}, 1, most);
  const auto periods = settings.choice(
      {"moment_periods",
       "Of the moments: 3 periods for the first and 6 for the second, their half-lives ln 0.5 / ln beta, or none."},
      {{"multiples", Periods::multiples}, {"half-life", Periods::half_life}, {"never", Periods::never}},
      Periods::multiples);
  const Key keys[] = {
      {"first_moment_period", "Of the first moment, SGD's momentum (K_u).", "steps", "by moment_periods"},
      {"second_moment_period", "Of the second moment (K_v).", "steps", "by moment_periods"}};
  constexpr std::array<Step::Rep, 2> multiples = {3, 6};
  std::array moments = {MomentSchedule::never, MomentSchedule::never};
  for (std::size_t i = 0; i < moments.size(); ++i) {
    const bool exists = i < context.moment_decays.size();
    const auto own = settings.optional_integer(keys[i], 1, most);
    if (own && !exists)
      settings.fault(keys[i].name, i == 0 ? "must be left out: the optimizer has no moments"
                                          : "must be left out: the optimizer has no second moment");
    if (exists)
      moments[i] =
          own ? Step{*own} : usual_period(periods, Step{multiples[i] * parameters.value()}, context.moment_decays[i]);
  }
  StatePolicies policies;
  read_buffer_policy(settings, policies);
  read_model_weights(settings, context.divides_data, policies);
  return std::make_unique<DesLoc>(parameters, moments, policies);
}

}  // namespace syncopate
