// DES-LOC: Local SGD that averages the parameters and each moment of the optimizer at periods of their own: what
// changes slowly is averaged rarely.
// Source:  Iacob et al. 2026, "DES-LOC: Desynced Low Communication Adaptive Optimizers for Training Foundation Models".
// Shapes:  gradient, parameters, each moment: (P,) flat float32.   Units: periods in steps.
// Cost:    per step (1 / K_x + 1 / K_u + 1 / K_v) P floats in all-reduces: with the recommended K_u = 3 K_x and K_v = 6
//          K_x half of what Local Adam (all K_x) moves. Workers meet every K_x steps, if the others are multiples of
//          it, and wait for stragglers as in Local SGD.
// Differs: no code of its authors was at hand. What falls on one step is one all-reduce. The averages after t steps are
//          what step t begins with, so that a moment's mean takes its place before the update; the second moment itself
//          is averaged, not its root. Not established: whether a step that begins with an average of the parameters has
//          its gradient at them (as here) or at the model before, and bias correction (here the run's optimizer's).
//          Gradients are clipped by `training.clip_norm`. The last step averages the parameters. A worker that loses
//          its state takes up that of the last meeting: if only moments met there, with its own parameters.
// Checks:  K_x = K_u = K_v equals Local SGD with averaged moments, and moments that are never averaged Local SGD with
//          kept ones, bit for bit; AdamW's recursion in double precision; bytes in closed form.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "algorithms/local_sgd/rounds.hpp"

namespace syncopate {

// DES-LOC's schedule: parameters and each moment of the optimizer are averaged at periods of their own. Whatever falls
// on one step is one all-reduce; per step that is 1 / K_x + 1 / K_u + 1 / K_v vectors of P floats.
class MomentSchedule final : public SyncPeriod {
 public:
  static constexpr Step never{std::numeric_limits<Step::Rep>::max()};

  // K_x; K_u and K_v, `never` for a moment that the optimizer does not have; what an average of the parameters does to
  // BatchNorm statistics. Throws std::invalid_argument for a period below 1.
  MomentSchedule(Step parameters, const std::array<Step, 2>& moments, StatePolicy buffers = StatePolicy::average);

  // Until the next step after which anything is averaged.
  Step at(Step done, double learning_rate, Step left) const override;
  // The averages after so many steps. After the run's last, `end`, the parameters are averaged.
  AveragePolicy due(Step done, Step end) const;
  // The steps after which the schedule repeats; the longest period where that would be more than 10^9.
  Step cycle() const;

 private:
  Step parameters_;
  std::array<Step, 2> moments_;
  StatePolicy buffers_;
};

inline MomentSchedule::MomentSchedule(Step parameters, const std::array<Step, 2>& moments, StatePolicy buffers)
    : parameters_(parameters), moments_(moments), buffers_(buffers) {
  if (parameters < 1 || moments[0] < 1 || moments[1] < 1)
    throw std::invalid_argument("a period must be at least 1 step");
}

inline Step MomentSchedule::at(Step done, double, Step left) const {
  Step::Rep next = std::max(left, Step{1}).value();
  for (const Step period : {parameters_, moments_[0], moments_[1]})
    next = std::min(next, period.value() - done.value() % period.value());
  return Step{next};
}

inline StatePolicy due_after(Step done, Step period) {
  return done.value() % period.value() == 0 ? StatePolicy::average : StatePolicy::keep;
}

inline AveragePolicy MomentSchedule::due(Step done, Step end) const {
  const StatePolicy parameters = done == end ? StatePolicy::average : due_after(done, parameters_);
  return {.moments = {due_after(done, moments_[0]), due_after(done, moments_[1])},
          .buffers = parameters == StatePolicy::average ? buffers_ : StatePolicy::keep,
          .parameters = parameters};
}

inline Step MomentSchedule::cycle() const {
  constexpr Step::Rep longest = 1'000'000'000;
  Step::Rep cycle = parameters_.value(), largest = cycle;
  for (const Step period : moments_) {
    if (period == never) continue;
    largest = std::max(largest, period.value());
    if (cycle <= longest) cycle *= period.value() / std::gcd(cycle, period.value());
  }
  return Step{cycle <= longest ? cycle : largest};
}

// Steps after which half of what a moment was is left in it: ln 0.5 / ln beta. 0 for beta = 0.
inline double half_life(double beta) { return beta > 0 ? std::log(0.5) / std::log(beta) : 0; }

class DesLoc : public Algorithm {
 public:
  // Only the policy of the buffers counts.
  DesLoc(Step parameters, const std::array<Step, 2>& moments, const StatePolicies& policies = {})
      : schedule_(parameters, moments, policies.average.buffers), policies_(policies) {}

  void run(Worker& worker) const override {
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

  Traits traits() const override {
    return {.follows_clock = false,
            .cycle = schedule_.cycle(),
            .lockstep_from_step = 0,
            .judges_budget_locally = true,
            .publishes_rounds = true,
            .takes_data_in_turn = true,
            .exchanged_whole = "moments are averaged as well, after steps of their own"};
  }

  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    Communicated sum;
    for (Step done{}; done < input.steps; ++sum.rounds) {
      done += schedule_.at(done, input.learning_rate.at(done), input.steps - done);
      sum.bytes += input.of_average(schedule_.due(done, input.steps));
    }
    return sum;
  }

 private:
  MomentSchedule schedule_;
  StatePolicies policies_;
};

inline std::unique_ptr<Algorithm> make_des_loc(Settings& settings, const AlgorithmContext& context) {
  enum class Periods { multiples, half_life, never };
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
  const auto usual = [&](std::size_t moment) -> Step {
    constexpr std::array<Step::Rep, 2> multiples = {3, 6};
    if (periods == Periods::multiples) return multiples[moment] * parameters.value();
    if (periods == Periods::never) return MomentSchedule::never;
    return std::max<Step::Rep>(1, std::llround(half_life(context.moment_decays[moment])));
  };
  std::array moments = {MomentSchedule::never, MomentSchedule::never};
  for (std::size_t i = 0; i < moments.size(); ++i) {
    const bool exists = i < context.moment_decays.size();
    const auto own = settings.optional_integer(keys[i], 1, most);
    if (own && !exists)
      settings.fault(keys[i].name, i == 0 ? "must be left out: the optimizer has no moments"
                                          : "must be left out: the optimizer has no second moment");
    if (exists) moments[i] = own ? Step{*own} : usual(i);
  }
  StatePolicies policies;
  read_buffer_policy(settings, policies);
  read_model_weights(settings, context.divides_data, policies);
  return std::make_unique<DesLoc>(parameters, moments, policies);
}

}  // namespace syncopate
