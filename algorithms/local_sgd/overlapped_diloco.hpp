// Outer steps that overlap the next round: DiLoCo, or any outer optimizer, whose average is one round late. Either all
// step along the late average (delayed), or each along its own fresh part and the others' late ones (eager).
// Source:  Kale, Douillard, Donchev 2025, "Eager Updates for Overlapped Communication and Computation in DiLoCo".
// Shapes:  gradient, parameters, outer momentum: (P,) flat float32.
// Cost:    one all-reduce of P floats per round, hidden by the next; two more vectors of P floats per worker, with
//          eager updates three.
// Differs: d_i is what worker i's round has added to the model; the paper's outer gradient is -d_i. That a worker's own
//          part is fresh and the others' late was read about the paper; the formulas here were not read in it. Delayed:
//          a round begins at X, the same on all workers, and X <- outer(X, X + mean(d')), d' of the round before. After
//          the first round X stays; after the last a second outer step takes its average in, so that there are as many
//          outer steps as rounds. Eager: X_i <- outer(X_i, X_i + mean(d') + (d_i - d_i') / N). In the first round
//          nothing is known of others, and the step is d_i / N long. The last round waits for its average before its
//          step, which takes mean(d) + mean(d') - d_i' / N: all that is left. Each worker keeps its own outer momentum,
//          which the sources leave open; worker 0's model is evaluated. After a plain outer optimizer all end with the
//          same. SlowMo's learning rate is that of the averaged round, of eager updates the newest. BatchNorm
//          statistics are as old as the average.
// Checks:  eager updates of one worker equal the method that waits; with a plain outer optimizer they telescope to the
//          sum of all averages; delayed by one round, a constant d gives DiLoCo's models.
#pragma once

#include "algorithms/local_sgd/overlapped_rounds.hpp"

namespace syncopate {

struct OverlappedOuterOptions {
  enum class Update { delayed, eager };
  // A delayed average is of what the workers have added since the round began, or of their models as they are. By then
  // X has changed, so that outer(X, mean(y')) also takes back what it has moved since.
  enum class Averaged { differences, models };
  Update update = Update::eager;
  Averaged averaged = Averaged::differences;
};

class OverlappedOuter : public OverlappedRounds {
 public:
  OverlappedOuter(std::shared_ptr<const SyncPeriod> period, std::shared_ptr<const OuterOptimizer> outer,
                  const OverlappedOuterOptions& options, const StatePolicies& policies)
      : OverlappedRounds(std::move(period), policies), outer_(std::move(outer)), options_(options) {}

  void run(Worker& worker) const override {
    train_together(worker, period_->synchronous_steps(), policies_);
    options_.update == OverlappedOuterOptions::Update::eager ? run_eager(worker) : run_delayed(worker);
  }

 private:
  void run_delayed(Worker& worker) const {
    const bool are_models = options_.averaged == OverlappedOuterOptions::Averaged::models;
    AverageUnderWay average(worker, policies_);
    double rate_of_average = 0;
    ModelStatePtr momentum;
    const auto step_along = [&](const ModelStatePtr& mean) {
      const ModelStatePtr last = worker.model();
      const ModelStatePtr target = are_models ? mean : worker.combine({{1, last}, {1, mean}}, mean);
      worker.set_model(
          outer_->step(worker, {.last = last, .average = target, .inner_rate = rate_of_average}, momentum));
    };
    while (average.rounds_left()) {
      const ModelStatePtr begin = worker.model();
      const double rate = average.take_round(*period_);
      const ModelStatePtr end = worker.model();
      worker.set_model(begin);
      if (average.is_under_way()) step_along(average.finish());
      are_models ? average.start(end, begin) : average.start(worker.combine({{1, end}, {-1, begin}}, end), nullptr);
      rate_of_average = rate;
      publish(worker, policies_);
    }
    if (average.is_under_way()) step_along(average.finish());
    publish(worker, policies_);
  }

  void run_eager(Worker& worker) const {
    const double share = 1.0 / worker.size();
    AverageUnderWay average(worker, policies_);
    ModelStatePtr momentum, before;
    while (average.rounds_left()) {
      const ModelStatePtr begin = worker.model();
      const double rate = average.take_round(*period_);
      const ModelStatePtr end = worker.model(), added = worker.combine({{1, end}, {-1, begin}}, end);
      std::vector<WeightedState> target = {{1, begin}};
      ModelStatePtr mean;
      if (average.is_under_way()) {
        mean = average.finish();
        target.insert(target.end(), {{1, mean}, {-share, before}});
      }
      average.start(added, nullptr);
      if (average.rounds_left()) {
        target.push_back({share, added});
      } else {
        mean = average.finish();
        target.push_back({1, mean});
      }
      const ModelStatePtr aim = worker.combine(target, mean ? mean : end);
      const OuterStep at{.last = begin, .average = aim, .inner_rate = rate};
      worker.set_model(outer_->step(worker, at, momentum));
      publish(worker, policies_);
      before = added;
    }
  }

  std::shared_ptr<const OuterOptimizer> outer_;
  OverlappedOuterOptions options_;
};

inline std::unique_ptr<Algorithm> make_overlapped_diloco(Settings& settings, const AlgorithmContext& context) {
  using Update = OverlappedOuterOptions::Update;
  auto period = read_sync_period(settings, context);
  auto outer = make_outer_optimizer(settings.section({"outer", "The optimizer that steps along the averages."}));
  OverlappedOuterOptions options;
  options.update =
      settings.choice({"update", "Eager: a worker's own part of the late average is replaced by its newest."},
                      {{"eager", Update::eager}, {"delayed", Update::delayed}}, Update::eager);
  const StatePolicies policies = read_overlapped_policies(settings, context);
  if (options.update == Update::eager && !policies.count_alike())
    settings.fault("weights",
                   "must be \"equal\" with update = \"eager\": a worker's own part there is 1 / N of the average");
  return std::make_unique<OverlappedOuter>(std::move(period), std::move(outer), options, policies);
}

}  // namespace syncopate
