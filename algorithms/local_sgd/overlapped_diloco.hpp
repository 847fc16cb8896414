// Overlapped DiLoCo: outer steps (of any outer optimizer) along an average that is under way during the next round, and
// so is one round late. Either all workers step along the late average (delayed updates), or each worker first replaces
// its own part of that average by its newest one (eager updates).
// Source:  Kale, Douillard, Donchev 2025, "Eager Updates for Overlapped Communication and Computation in DiLoCo".
// Shapes:  gradient, parameters, outer momentum: (P,) flat float32.
// Cost:    one all-reduce of P floats per round, hidden by the next; two more vectors of P floats per worker, with
//          eager updates three.
// Differs: d_i is the change of worker i's model in a round, and d_i' that in the previous round; the paper's outer
//          gradient is -d_i. We have not read the paper: that a worker's own part is fresh and the others' late is from
//          descriptions of it, and we have not seen its formulas. Delayed: a round begins at X, the same on all
//          workers, and X <- outer(X, X + mean(d')). X does not change after the first round. After the last round a
//          second outer step uses its average, so that there are as many outer steps as rounds.
//          Eager: X_i <- outer(X_i, X_i + mean(d') + (d_i - d_i') / N). After the first round a worker knows only d_i,
//          and steps along d_i / N. The last round waits for its average before its step, which is along
//          mean(d) + mean(d') - d_i' / N, so that no part is left out. Each worker keeps its own outer momentum, which
//          the sources leave open; worker 0's model is evaluated. With a plain outer optimizer all end with the same
//          model. SlowMo's learning rate is that of the averaged round, with eager updates that of the newest round.
//          BatchNorm statistics are as old as the average.
// Checks:  eager updates of one worker equal DiLoCo that waits; with a plain outer optimizer eager updates sum up to
//          the sum of all averages; with a constant d, delayed updates give DiLoCo's models one round late.
#pragma once

#include "algorithms/local_sgd/local_rounds.hpp"

namespace syncopate {

// A delayed average is over the workers' changes d in the round, or their models y' at its end. When it arrives,
// the common model X is no longer the one with which that round began. With models, the outer step X - mean(y') also
// undoes the change of X since then; with changes it does not.
enum class Averaged { differences, models };

class DelayedWorker final : public LateRule::OfWorker {
 public:
  DelayedWorker(Worker& worker, const OuterOptimizer& outer, const StatePolicies& policies, Averaged averaged)
      : OfWorker(worker, outer, policies), are_models_(averaged == Averaged::models) {}

  void end_round(AverageUnderWay& average, const ModelStatePtr& begin, double rate) override {
    const ModelStatePtr end = worker_.model();
    worker_.set_model(begin);
    if (average.is_under_way()) step_along(average.finish());
    are_models_ ? average.start(end, begin) : average.start(worker_.combine({{1, end}, {-1, begin}}, end), nullptr);
    rate_of_average_ = rate;
    publish(worker_, policies_);
  }

  void end(AverageUnderWay& average) override {
    if (average.is_under_way()) step_along(average.finish());
    publish(worker_, policies_);
  }

 private:
  void step_along(const ModelStatePtr& mean) {
    const ModelStatePtr last = worker_.model();
    const ModelStatePtr aim = are_models_ ? mean : worker_.combine({{1, last}, {1, mean}}, mean);
    worker_.set_model(outer_(worker_, {.last = last, .average = aim, .inner_rate = rate_of_average_}, state_));
  }

  bool are_models_;
  double rate_of_average_ = 0;
  OuterState state_{};
};

class EagerWorker final : public LateRule::OfWorker {
 public:
  using OfWorker::OfWorker;

  void end_round(AverageUnderWay& average, const ModelStatePtr& begin, double rate) override {
    const double share = 1.0 / worker_.size();
    const ModelStatePtr end = worker_.model(), added = worker_.combine({{1, end}, {-1, begin}}, end);
    std::vector<WeightedState> target = {{1, begin}};
    ModelStatePtr mean;
    if (average.is_under_way()) {
      mean = average.finish();
      target.insert(target.end(), {{1, mean}, {-share, before_}});
    }
    average.start(added, nullptr);
    if (average.rounds_left()) {
      target.push_back({share, added});
    } else {
      mean = average.finish();
      target.push_back({1, mean});
    }
    const ModelStatePtr aim = worker_.combine(target, mean ? mean : end);
    worker_.set_model(outer_(worker_, {.last = begin, .average = aim, .inner_rate = rate}, state_));
    publish(worker_, policies_);
    before_ = added;
  }

  void end(AverageUnderWay&) override {}  // the last round has waited for its average

 private:
  OuterState state_{};
  ModelStatePtr before_{};
};

inline LateRule make_delayed_rule(Averaged averaged) {
  return {.begin = begin_late<DelayedWorker>(averaged), .held_vectors = 3, .takes_outer_steps = true};
}
inline LateRule make_eager_rule() {
  return {.begin = begin_late<EagerWorker>(), .held_vectors = 4, .takes_outer_steps = true, .counts_alike = true};
}

inline Averaged read_averaged(Settings& settings, std::string_view key) {
  return settings.choice(
      {key, "Model from which averaged differences are taken: the averaged round's first, or the newest outer one."},
      {{"round-start", Averaged::differences}, {"outer-model", Averaged::models}}, Averaged::differences);
}

inline std::unique_ptr<Algorithm> make_overlapped_diloco(Settings& settings, const AlgorithmContext& context) {
  enum class Update { delayed, eager };
  RoundChoices choices{.period = read_sync_period(settings, context)};
  choices.outer = make_outer_optimizer(settings.section({"outer", "The optimizer that steps along the averages."}));
  const auto update = settings.choice(
      {"update", "Whether a worker replaces its own share of the late average by its newest difference (eager)."},
      {{"eager", Update::eager}, {"delayed", Update::delayed}}, Update::eager);
  choices.late = update == Update::eager ? make_eager_rule() : make_delayed_rule(Averaged::differences);
  choices.policies = read_buffer_policies(settings, context);
  if (update == Update::eager && !choices.policies.count_alike())
    settings.fault("weights",
                   "must be \"equal\" with update = \"eager\", which assumes that a worker's part is 1 / N of the "
                   "average");
  return std::make_unique<LocalRounds>(std::move(choices));
}

}  // namespace syncopate
