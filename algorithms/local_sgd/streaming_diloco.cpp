#include "algorithms/local_sgd/streaming_diloco.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "algorithms/local_sgd/outer_fragments.hpp"
#include "algorithms/local_sgd/planned_steps.hpp"
#include "algorithms/local_sgd/streaming_prediction.hpp"

namespace syncopate {

void StreamingDiloco::run(Worker& worker) const {
  train_together(worker, period_->synchronous_steps(), policies_);
  options_.fragments.check(worker);
  OuterFragments outer(worker, options_.fragments, *outer_, options_.mixing, policies_);
  PlannedSteps steps(worker);
  const auto train_until = [&](Step step) { steps.take_until(step, [&](double rate) { outer.add_step(rate); }); };
  while (steps.steps_left() && (outer.is_first() || worker.budget_left())) {
    const Step begin = steps.planned(), round = steps.round(*period_);
    for (int fragment = 0; fragment < options_.fragments.count(); ++fragment) {
      const Step turn = begin + options_.fragments.offset(fragment, round);
      while (outer.are_due_before(turn)) {
        train_until(outer.next_due());
        outer.finish_next();
      }
      train_until(turn);
      outer.start(fragment, turn + options_.delay);
      while (outer.are_due_before(turn + 1)) outer.finish_next();
    }
  }
  while (outer.are_under_way()) outer.finish_next();
}

// The card.
Traits StreamingDiloco::traits() const {
  Traits traits{.follows_clock = false,
                .judges_alone = true,
                .publishes_rounds = true,
                .averages_models = true,
                .averaged_slices = options_.fragments.count(),
                .waits_for_averages = false};
  if (options_.delay == Step{0}) traits.same_course_from = 0;  // nothing is under way while anybody computes
  return traits;
}

Forecast StreamingDiloco::forecast(const PredictionInput& input) const {
  return predict_fragments(*period_, options_.fragments, options_.delay, policies_.average, input);
}

// All fragments of a round are as much as the whole model.
std::optional<Communicated> StreamingDiloco::communication(const CommunicationInput& input) const {
  Communicated sum = communicated_in_rounds(*period_, policies_.average, input);
  const Step together = std::min(period_->synchronous_steps(), input.steps);
  sum.rounds += (sum.rounds - together.value()) * (options_.fragments.count() - 1);
  return sum;
}

namespace {

// Of the steps that the run is known to have; of a rate that is not known the first one.
Step shortest_round(const SyncPeriod& period, const AlgorithmContext& context) {
  constexpr Step endless = std::numeric_limits<Step::Rep>::max() / 2;
  constexpr int most_rounds = 1'000'000;
  Step shortest = endless, done = period.synchronous_steps();
  const Step end = context.learning_rate ? context.total_steps.value_or(done) : done;
  for (int rounds = 0; rounds == 0 || (done < end && rounds < most_rounds); ++rounds) {
    const Step round = period.at(done, context.learning_rate ? context.learning_rate->at(done) : 1.0, endless);
    shortest = std::min(shortest, round);
    done += round;
  }
  return shortest;
}

}  // namespace

std::unique_ptr<Algorithm> make_streaming_diloco(Settings& settings, const AlgorithmContext& context) {
  const std::size_t faults = settings.faults_so_far();
  auto period = read_sync_period(settings, context);
  const bool has_period = settings.faults_so_far() == faults;
  Settings outer = settings.section({"outer", "The optimizer that steps along the averages."});
  std::shared_ptr<const OuterOptimizer> optimizer = make_outer_optimizer(outer);
  StreamingOptions options{.fragments = read_fragments(settings, {}, context.parameters)};
  options.delay = Step{settings.integer(
      {"delay", "After how many local steps an average is taken in (tau), at most those of a round.", "steps"}, 0,
      1'000'000'000, 0)};
  options.mixing =
      settings.number({"mixing", "How much of a worker's own fragment stays when a new one has come (alpha)."},
                      Range::between(0, 1), 0.0);
  if (const Step round = shortest_round(*period, context); has_period && options.delay > round)
    settings.fault("delay", fmt::format("must be at most {}, the steps of the shortest round", round.value()));
  StatePolicies policies;
  read_buffer_policy(settings, policies);
  read_model_weights(settings, context.divides_data, policies);
  return std::make_unique<StreamingDiloco>(std::move(period), std::move(optimizer), std::move(options), policies);
}

}  // namespace syncopate
