#include "algorithms/local_sgd/des_loc.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/local_sgd/round_prediction.hpp"

namespace syncopate {

void DesLoc::run(Worker& worker) const {
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
Forecast DesLoc::forecast(const PredictionInput& input) const {
  const Step end = input.steps().value_or(MomentSchedule::never);
  RoundFormulas formulas = rounds_until({}, AveragePolicy(), input);
  formulas.of_normal_sums = "rounds of normal sums";
  formulas.of_sampled_sums = "rounds of sampled sums";
  formulas.further_communication_s = [&, one_s = input.average_s(AveragePolicy())](Step done) {
    return input.average_s(schedule_.due(done, end)) - one_s;
  };
  return predict_rounds(schedule_, formulas, input);
}

std::optional<Communicated> DesLoc::communication(const CommunicationInput& input) const {
  Communicated sum;
  for (Step done{}; done < input.steps; ++sum.rounds) {
    done += schedule_.at(done, input.learning_rate.at(done), input.steps - done);
    sum.bytes += input.of_average(schedule_.due(done, input.steps));
  }
  return sum;
}

namespace {

enum class Periods { multiples, half_life, never };

// Of a moment whose own key is not written.
Step usual_period(Periods periods, Step multiple, double beta) {
  if (periods == Periods::multiples) return multiple;
  if (periods == Periods::never) return MomentSchedule::never;
  return Step{std::max<Step::Rep>(1, std::llround(half_life(beta)))};
}

}  // namespace

std::unique_ptr<Algorithm> make_des_loc(Settings& settings, const AlgorithmContext& context) {
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
