#include "algorithms/local_sgd/edit.hpp"

#include <algorithm>
#include <vector>

namespace syncopate {

void Edit::run(Worker& worker) const {
  const bool is_timed = options_.is_timed();
  train_together(worker, is_timed ? options_.timed.warmup_steps : options_.period->synchronous_steps(), options_.state);
  const bool from_arrival = options_.timed.counted_from == TimedRounds::CountedFrom::arrival;
  std::shared_ptr<const RoundMeeting> met;
  ModelStatePtr momentum;
  Time counted_from = worker.now();
  while (worker.budget_left()) {
    const ModelStatePtr last = worker.model();
    RoundWork work(worker);
    do {
      take_steps(worker, counted_from, work);
      const Time arrival = worker.now();
      met = meet(worker, options_, last, work, met);
      counted_from = from_arrival ? arrival : worker.now();
    } while (met->is_put_off);
    if (is_timed) worker.skip_steps(met->longest - work.passed);
    worker.set_model(worker.combine(last, worker.model(), met->penalty.factors_of(worker.rank())));
    worker.average_model({.policy = options_.state.average});
    const double rate = options_.tells_steps() ? met->inner_rate : work.mean_rate();
    const OuterStep at{.last = last, .average = clip(worker, last, met->penalty), .inner_rate = rate};
    worker.set_model(take_outer_step(worker, at, met->penalty, momentum));
    publish(worker, options_.state);
    if (!from_arrival) counted_from = worker.now();
  }
}

void Edit::take_steps(Worker& worker, Time counted_from, RoundWork& work) const {
  constexpr Step endless = 1'000'000'000'000;
  const bool is_timed = options_.is_timed();
  const Step most =
      is_timed ? endless : options_.period->at(worker.step(), worker.learning_rate(), worker.steps_left());
  for (Step taken{}; taken < most && worker.budget_left(Judged::alone); ++taken) {
    work.rates += worker.learning_rate();
    const Gradient sum = worker.compute_step_gradient(is_timed ? Samples::in_turn : Samples::of_step);
    worker.descend(sum / worker.micro_batches());
    ++work.passed;
    ++*work.kept;
    if (is_timed && worker.now() - counted_from >= options_.timed.length) break;
  }
}

// The average, not further from the last model than it may be; a module in which all are outliers is where it was.
ModelStatePtr Edit::clip(const Worker& worker, const ModelStatePtr& last, const Penalty& penalty) const {
  const std::vector<bool>& rolled_back = penalty.rolled_back;
  const bool rolls_back = std::ranges::find(rolled_back, true) != rolled_back.end();
  if (options_.penalty.clip_norm == PenaltyOptions::infinity && !rolls_back) return worker.model();
  const std::vector<double> norms = worker.distance(worker.model(), last, each_tensor);
  std::vector<double> factors;
  for (std::size_t i = 0; i < norms.size(); ++i) {
    const double norm = options_.clip_scope == EditOptions::Scope::model ? norm_of(norms) : norms[i];
    factors.push_back(rolled_back[rolled_back.size() == 1 ? 0 : i] ? 0 : clip_factor(norm, options_.penalty.clip_norm));
  }
  return worker.combine(last, worker.model(), factors);
}

ModelStatePtr Edit::take_outer_step(const Worker& worker, const OuterStep& at, const Penalty& penalty,
                                    ModelStatePtr& momentum) const {
  const ModelStatePtr before = momentum, next = options_.outer->step(worker, at, momentum);
  std::vector<double> moves;
  for (const bool is_back : penalty.rolled_back) moves.push_back(is_back ? 0 : 1);
  if (before) momentum = worker.combine(before, momentum, moves);
  return worker.combine(at.last, next, moves);
}

// The card.
Forecast Edit::forecast(const PredictionInput& input) const {
  constexpr std::int64_t each = sizeof(double);
  const std::int64_t gathered = input.workers * options_.told_numbers().value_or(1);
  const double meeting_s = to_seconds(input.network.all_gather(input.workers, Bytes{each * gathered}));
  if (options_.is_timed())
    return predict_timed_rounds(options_.timed, {meeting_s, input.average_s(options_.state.average)}, input);
  const auto with_meeting = [meeting_s](const TimeOfRound& round) -> TimeOfRound {
    return [=](Step length) {
      std::optional<RoundTime> time = round(length);
      if (time) time->time_s += meeting_s;
      if (time) time->communication_s += meeting_s;
      return time;
    };
  };
  RoundFormulas formulas = rounds_until({}, options_.state.average, input);
  formulas.of_normal_sums = "rounds of normal sums";
  formulas.of_sampled_sums = "rounds of sampled sums";
  formulas.by_normal_sums = with_meeting(formulas.by_normal_sums);
  formulas.by_sampled_sums = with_meeting(formulas.by_sampled_sums);
  return predict_rounds(*options_.period, formulas, input);
}

std::optional<Communicated> Edit::communication(const CommunicationInput& input) const {
  constexpr std::int64_t each = sizeof(double);
  if (options_.is_timed() || !options_.told_numbers()) return std::nullopt;
  Communicated result = communicated_in_rounds(*options_.period, options_.state.average, input);
  const std::int64_t meetings = result.rounds - std::min(options_.period->synchronous_steps(), input.steps).value();
  const Bytes gathered{each * input.workers * *options_.told_numbers()};
  result.bytes += Bytes{meetings * all_gather_bytes(input.workers, gathered).value()};
  return result;
}

std::unique_ptr<Algorithm> make_edit(Settings& settings, const AlgorithmContext& context) {
  using Scope = EditOptions::Scope;
  EditOptions options;
  const bool has_period = settings.has("period");
  const bool is_timed = read_timed_rounds(settings, options.timed, context.work);
  if (is_timed && has_period)
    settings.fault("sync_seconds", "must not stand beside a table `period`: rounds end by time or by steps");
  if (!is_timed && !has_period) settings.fault("algorithm", "needs a table `period` (EDiT), or sync_seconds (A-EDiT)");
  if (has_period) options.period = read_sync_period(settings, context);
  Settings outer = settings.section({"outer", "The optimizer that steps along the averages."});
  options.outer = make_outer_optimizer(outer);
  options.penalty = read_penalty(settings);
  options.scope = settings.choice(
      {"scope", "What is weighed by itself, and may be an outlier by itself: each tensor, or the whole model."},
      {{"tensor", Scope::tensor}, {"model", Scope::model}}, options.scope);
  options.clip_scope =
      settings.choice({"clip_scope", "What is clipped by itself."},
                      {{"tensor", Scope::tensor}, {"model", Scope::model}}, options.scope, "as `scope`");
  options.state = read_state_policies(settings);
  options.tensors = context.time_only ? std::optional(1) : context.tensors;
  return std::make_unique<Edit>(std::move(options));
}

}  // namespace syncopate
