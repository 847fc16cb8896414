#include "algorithms/local_sgd/local_rounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <utility>

#include "algorithms/local_sgd/cocod_sgd.hpp"
#include "algorithms/local_sgd/overlap_local_sgd.hpp"
#include "algorithms/local_sgd/overlapped_diloco.hpp"
#include "algorithms/local_sgd/rounds.hpp"

namespace syncopate {

bool AverageUnderWay::rounds_left() const {
  const bool is_first = started_ && !has_come_;
  return steps_.steps_left() && (is_first || worker_.budget_left());
}

double AverageUnderWay::take_round(const SyncPeriod& period, LocalSteps& steps) {
  MeanRate rate;
  steps.begin_round();
  steps_.take_until(steps_.planned() + steps_.round(period), steps, [&](double of_step) { rate.add(of_step); });
  return rate.value();
}

void AverageUnderWay::start(const ModelStatePtr& mine, const ModelStatePtr& from, Participant::CalledFrom at) {
  started_.emplace(worker_.start(Collective::average(mine, {.policy = policy_, .weight = weight_, .from = from}), at));
}

ModelStatePtr AverageUnderWay::finish(Participant::CalledFrom at) {
  StartedCollective started = std::move(*started_);
  started_.reset();
  has_come_ = true;
  return worker_.finish(std::move(started), at).model;
}

namespace {

// The outer model of a training by fragments, as one worker holds it, and the pending averages of its fragments. An
// outer step along an average changes only one fragment. Steps are those of the workers' plan (PlannedSteps). Averages
// end in the order in which they start, since all have the same delay. An outage does not erase this state, since all
// workers hold the same.
// Cost:    an outer step writes all parameters, although only a fragment's change, once for all workers of a process;
//          each worker copies its model.
class OuterFragments {
 public:
  // Begins with the worker's model. The arguments must outlive this object. `mixing`: the share of its own fragment
  // that a worker keeps at an outer step.
  OuterFragments(Worker& worker, const Fragments& fragments, const OuterOptimizer& outer, double mixing,
                 const StatePolicies& policies)
      : worker_(worker),
        fragments_(fragments),
        outer_(outer),
        mixing_(mixing),
        policies_(policies),
        rates_(static_cast<std::size_t>(fragments.count())),
        model_(worker.model()) {}

  bool are_under_way() const { return !under_way_.empty(); }
  bool are_due_before(Step step) const { return are_under_way() && next_due() < step; }
  Step next_due() const { return under_way_.front().due; }
  // Whether the first average is in progress. Until this average is finished, workers agree only on numbers of steps.
  bool is_first() const { return are_under_way() && !has_come_; }

  // Records the learning rate of a local step for all fragments.
  void add_step(double rate) {
    for (MeanRate& fragment : rates_) fragment.add(rate);
  }
  // Starts the average of this fragment of the worker's model, to be finished at the planned step `due`. With
  // compression, workers send the fragment's difference to the outer model, that is, its outer gradient.
  void start(int fragment, Step due) {
    MeanRate& rate = rates_[static_cast<std::size_t>(fragment)];
    const Averaging averaging{.policy = policies_.average,
                              .weight = policies_.model_weight(),
                              .slice = fragments_.slice(fragment),
                              .from = model_,
                              .rest_is_needed = false};
    under_way_.push_back({fragment, due, rate.value(), worker_.start(Collective::average(worker_.model(), averaging))});
    rate = {};
  }
  // Waits for the oldest average and takes an outer step along it. The worker then adopts the new fragment, mixed with
  // its own, and publishes the outer model.
  void finish_next() {
    auto [fragment, due, rate, average] = std::move(under_way_.front());
    under_way_.pop_front();
    const ModelStatePtr mean = worker_.finish(std::move(average)).model;
    has_come_ = true;
    const Slice slice = fragments_.slice(fragment);
    model_ = moments_.step(worker_, outer_, {.last = model_, .average = mean, .inner_rate = rate}, slice);
    const ModelStatePtr own = worker_.model();
    const ModelStatePtr mixed = worker_.combine({{1 - mixing_, model_}, {mixing_, own}});
    worker_.set_model(worker_.with_slice(own, mixed, slice));
    publish(worker_, policies_, model_);
  }

 private:
  struct UnderWay {
    int fragment;
    Step due;
    double rate;  // mean learning rate of the averaged steps
    StartedCollective average;
  };

  Worker& worker_;
  const Fragments& fragments_;
  const OuterOptimizer& outer_;
  double mixing_;
  const StatePolicies& policies_;
  std::vector<MeanRate> rates_;  // mean learning rates since each fragment's last average started
  std::deque<UnderWay> under_way_{};
  bool has_come_ = false;  // whether an average has been finished
  ModelStatePtr model_;
  FragmentMoments moments_{};
};

using LateRuleRow = RuleRow<LateRule(Settings&)>;  // the sentence says where the next round begins
constexpr std::array late_kinds = {
    LateRuleRow{"outer-model", "at the outer model after its step along the late average (delayed updates)",
                [](Settings& settings) { return make_delayed_rule(read_averaged(settings, "averaged")); }},
    LateRuleRow{"eager", "at the result of an outer step that already has the worker's own newest part (eager updates)",
                [](Settings&) { return make_eager_rule(); }},
    LateRuleRow{"own-steps", "at the late average plus the worker's own steps since then (CoCoD-SGD)",
                [](Settings&) { return make_cocod_rule(); }},
    LateRuleRow{"anchor",
                "between the worker's model and an anchor, which follows the late averages (Overlap-Local-SGD)",
                [](Settings& settings) { return make_anchor_rule(read_overlap_local(settings)); }},
};

// The length of the run's shortest round, or of its first round if the run's steps or learning rate are unknown.
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

std::optional<LateRule> read_late(Settings& settings) {
  if (!settings.has("late")) return std::nullopt;
  Settings table = settings.section({"late", "Averages are one round late; if left out, workers wait for them."});
  const auto* const row = table.row({"next", "At which model the next round begins."}, late_kinds);
  return row ? row->make(table) : make_cocod_rule();
}

void check_together(Settings& settings, const RoundChoices& choices) {
  const bool is_apart = choices.late || choices.fragments;
  if (choices.groups && choices.steps.may_stop)
    settings.fault(
        "groups",
        "cannot be combined with steps that stop at a time: a group would wait for a worker that has stopped");
  if (choices.groups && is_apart)
    settings.fault("groups", "cannot be combined with `late` or `fragments`: workers would wait for their group");
  if (choices.late && choices.fragments)
    settings.fault("fragments", "cannot be combined with `late`: fragments have a `delay` of their own");
  const bool takes_outer_steps = !choices.late || choices.late->takes_outer_steps;
  if (choices.outer && !takes_outer_steps)
    settings.fault("outer", "must be left out with this `late`: workers do not begin the next round at a shared model");
  if (!choices.outer && is_apart && takes_outer_steps)
    settings.fault("outer", "must be given: with this `late`, or with `fragments`, an outer step uses the average");
  if (!choices.period->is_known_before() && is_apart)
    settings.fault("period",
                   "must have another rule than \"loss\": `late` and `fragments` need all periods in advance");
  if (!choices.period->is_known_before() && !choices.steps.phase)
    settings.fault("period", "must have another rule than \"loss\": skipped steps have no loss");
  if (choices.period->sets_averages() && (is_apart || choices.steps.may_stop))
    settings.fault("period",
                   "must have another rule than \"per-moment\": here parameters and moments are averaged together");
}

}  // namespace

void LocalRounds::run(Worker& worker) const {
  const Step together = choices_.period->synchronous_steps();
  if (const auto rate = choices_.steps.learning_rate_over(worker.steps_left() - together))
    worker.follow(*rate, together);
  choices_.steps.train_together(worker, together, choices_.policies);
  const auto steps = choices_.steps.begin(worker);
  if (choices_.late) return run_late_rounds(worker, *steps);
  if (choices_.fragments) return run_in_fragments(worker, *steps);
  run_rounds(worker, *steps);
}

void LocalRounds::run_rounds(Worker& worker, LocalSteps& steps) const {
  const auto lengths = choices_.period->begin(worker);
  if (lengths->sees_gradients()) steps.watch([&lengths](Gradient& mean) { lengths->see(mean); });
  ModelStatePtr last = worker.model();
  OuterState outer;
  MeanRate rate;  // mean learning rate since the last average
  bool is_whole = true, goes_on = true;
  while (worker.budget_left()) {
    const Step length = lengths->next(), end = worker.step() + worker.steps_left();
    const AveragePolicy due = choices_.period->due(worker.step() + length, end, choices_.policies.average);
    // If a budget of seconds cuts the last round short, workers may differ in its length; worker 0 publishes.
    take_round(worker, steps, length, rate);
    const bool by_steps = choices_.policies.weights == ModelWeights::steps;
    const double weight = by_steps ? static_cast<double>(steps.taken().value()) : choices_.policies.model_weight();
    goes_on = worker.average_model({.policy = due, .weight = weight, .from = steps.began_at()});
    is_whole = due.parameters == StatePolicy::average;
    if (is_whole) end_round(worker, last, rate, outer);
    lengths->end_round();
  }
  if (is_whole || goes_on) return;
  // The clock has ended the run after an average of moments alone, so the parameters are averaged now.
  worker.average_model(
      {.policy = {.buffers = choices_.policies.average.buffers}, .weight = choices_.policies.model_weight()});
  end_round(worker, last, rate, outer);
}

void LocalRounds::end_round(Worker& worker, ModelStatePtr& last, MeanRate& rate, OuterState& outer) const {
  if (choices_.outer)
    worker.set_model(
        choices_.outer(worker, {.last = last, .average = worker.model(), .inner_rate = rate.value()}, outer));
  publish(worker, choices_.policies);
  last = worker.model();
  rate = {};
}

void LocalRounds::run_late_rounds(Worker& worker, LocalSteps& steps) const {
  AverageUnderWay average(worker, choices_.policies);
  const auto rule = choices_.late->begin(worker, choices_.outer, choices_.policies);
  while (average.rounds_left()) {
    const ModelStatePtr begin = worker.model();
    const double rate = average.take_round(*choices_.period, steps);
    rule->end_round(average, begin, rate);
  }
  rule->end(average);
}

void LocalRounds::run_in_fragments(Worker& worker, LocalSteps& steps) const {
  const auto& [fragments, delay, mixing] = *choices_.fragments;
  fragments.check(worker);
  OuterFragments outer(worker, fragments, choices_.outer, mixing, choices_.policies);
  PlannedSteps plan(worker);
  const auto train_until = [&](Step step) { plan.take_until(step, steps, [&](double rate) { outer.add_step(rate); }); };
  while (plan.steps_left() && (outer.is_first() || worker.budget_left())) {
    const Step begin = plan.planned(), round = plan.round(*choices_.period);
    steps.begin_round();
    for (int fragment = 0; fragment < fragments.count(); ++fragment) {
      const Step turn = begin + fragments.offset(fragment, round);
      while (outer.are_due_before(turn)) {
        train_until(outer.next_due());
        outer.finish_next();
      }
      train_until(turn);
      outer.start(fragment, turn + delay);
      while (outer.are_due_before(turn + 1)) outer.finish_next();
    }
  }
  while (outer.are_under_way()) outer.finish_next();
}

// Takes the round's `left` steps and adds their learning rates to `rate`.
void LocalRounds::take_round(Worker& worker, LocalSteps& steps, Step left, MeanRate& rate) const {
  const auto take = [&](Step count) { take_steps(worker, steps, count, [&](double of_step) { rate.add(of_step); }); };
  steps.begin_round();
  for (bool goes_on = true; choices_.groups && goes_on && left > choices_.groups->period;) {
    take(choices_.groups->period);
    goes_on = worker.average_model({.policy = choices_.policies.average,
                                    .weight = choices_.policies.model_weight(),
                                    .group_size = choices_.groups->size});
    left = goes_on ? left - choices_.groups->period : Step{};
  }
  take(left);
}

Traits LocalRounds::traits() const {
  const bool has_groups = choices_.groups.has_value(), waits = !choices_.late && !choices_.fragments;
  Traits traits = choices_.steps.traits;
  traits.has_formulas = choices_.steps.phase && !has_groups && waits;
  traits.settles_after = choices_.period->synchronous_steps();
  traits.judges_budget_locally = !has_groups && !choices_.steps.may_stop;
  traits.publishes_rounds = true;
  traits.publishes_stepped_models =
      waits && !choices_.period->sets_averages() && choices_.policies.average.moments[0] != StatePolicy::keep;
  choices_.period->describe(traits);
  // An outer step needs its first model and its momentum; fragments also need the average in progress.
  if (choices_.fragments)
    traits.held.models += 3;
  else if (choices_.late)
    traits.held.models += choices_.late->held_vectors;
  else if (choices_.outer)
    traits.held.models += 2;
  // Whether no average is in progress while a worker computes.
  const bool meets = waits || (choices_.fragments && choices_.fragments->delay == Step{0});
  if (has_groups || !meets) traits.lockstep_from_step.reset();
  if (has_groups) traits.exchanged_whole = "averages of groups and averages of all would need separate residuals";
  if (!traits.exchanged_whole.empty()) return traits;
  traits.averages_models = true;
  traits.averages_moments = choices_.policies.average.averaged_vectors(most_moments) > 1;
  traits.waits_for_averages = waits;
  if (choices_.fragments) traits.averaged_slices = choices_.fragments->fragments.count();
  return traits;
}

Forecast LocalRounds::forecast(const PredictionInput& input) const {
  if (!traits().has_formulas) return {};
  if (choices_.steps.phase->micro_batches)
    return Forecast::none("local steps have another number of micro-batches than synchronous steps");
  // Rules that use the learning rate have no synchronous steps, so the local phase is the whole run.
  const auto rate = choices_.steps.learning_rate_over(input.budget.steps.value_or(Step{}));
  return predict_rounds(*choices_.period, choices_.policies.average, rate ? *rate : input.learning_rate, input);
}

// Skipped steps do not change the communication: their workers still take part in every average.
std::optional<Communicated> LocalRounds::communication(const CommunicationInput& input) const {
  if (!choices_.period->is_known_before()) return std::nullopt;
  const auto rate = choices_.steps.learning_rate_over(input.steps);
  // Each fragment has a row of steps.csv. All fragments together have the bytes of the model.
  const int rows = choices_.fragments ? choices_.fragments->fragments.count() : 1;
  return communicated_in_rounds(
      *choices_.period, choices_.policies.average, input,
      {.groups = choices_.groups.value_or(GroupsOfRound{}), .rate = rate ? &*rate : nullptr, .rows = rows});
}

GroupsOfRound read_groups(Settings& settings, const AlgorithmContext& context, const std::string& prefix) {
  const std::string size = prefix + "size", period = prefix + "period";
  GroupsOfRound groups;
  groups.size = static_cast<int>(settings.integer({size, "How many workers of consecutive ranks form a group."}, 1,
                                                  Stated(context.workers, "workers")));
  groups.period = settings.integer({period, "Local steps between a group's averages.", "steps"}, 1,
                                   std::numeric_limits<Step::Rep>::max());
  return groups;
}

FragmentsOfRound read_fragments_of_round(Settings& settings, const AlgorithmContext& context,
                                         const SyncPeriod* period) {
  FragmentsOfRound result{.fragments = read_fragments(settings, {}, context.parameters)};
  result.delay = Step{settings.integer(
      {"delay", "Local steps from the start of a fragment's average to its use (tau); at most a round.", "steps"}, 0,
      1'000'000'000, 0)};
  result.mixing =
      settings.number({"mixing", "Share of a worker's own fragment that it keeps when it adopts a new one (alpha)."},
                      Range::between(0, 1), 0.0);
  if (!period) return result;
  if (const Step round = shortest_round(*period, context); result.delay > round)
    settings.fault("delay", fmt::format("must be at most {}, the length of the shortest round", round.value()));
  return result;
}

std::unique_ptr<Algorithm> make_rounds(Settings& settings, const AlgorithmContext& context) {
  RoundChoices choices;
  choices.steps = read_steps(settings, context);
  const std::size_t faults = settings.faults_so_far();
  choices.period = read_sync_period(settings, context, choices.steps.phase, /*may_follow_run=*/true);
  const bool has_period = settings.faults_so_far() == faults;
  if (settings.has("groups")) {
    Settings groups = settings.section({"groups", "Averages within groups of workers during a round."});
    choices.groups = read_groups(groups, context, "");
  }
  choices.late = read_late(settings);
  if (settings.has("fragments"))
    choices.fragments = read_fragments_of_round(settings, context, has_period ? choices.period.get() : nullptr);
  if (settings.has("outer"))
    choices.outer = make_outer_optimizer(settings.section({"outer", "The optimizer that steps along the averages."}));
  check_together(settings, choices);
  const bool is_late_or_in_parts = choices.late || choices.fragments;
  if (choices.steps.may_stop && !is_late_or_in_parts)
    choices.policies = read_policies_of_stopping(settings, context);
  else if (is_late_or_in_parts || choices.period->sets_averages())
    choices.policies = read_buffer_policies(settings, context);
  else
    choices.policies = read_state_policies(settings, context);
  if (choices.late && choices.late->counts_alike && !choices.policies.count_alike())
    settings.fault("weights",
                   "must be \"equal\" with this `late`: it assumes that a worker's own part is 1 / N of the average");
  return std::make_unique<LocalRounds>(std::move(choices));
}

}  // namespace syncopate
