#include "algorithms/local_sgd/overlapped_outer.hpp"

#include <vector>

namespace syncopate {

void OverlappedOuter::run(Worker& worker) const {
  train_together(worker, period_->synchronous_steps(), policies_);
  options_.update == OverlappedOuterOptions::Update::eager ? run_eager(worker) : run_delayed(worker);
}

void OverlappedOuter::run_delayed(Worker& worker) const {
  const bool are_models = options_.averaged == OverlappedOuterOptions::Averaged::models;
  AverageUnderWay average(worker, policies_);
  double rate_of_average = 0;
  ModelStatePtr momentum;
  const auto step_along = [&](const ModelStatePtr& mean) {
    const ModelStatePtr last = worker.model();
    const ModelStatePtr target = are_models ? mean : worker.combine({{1, last}, {1, mean}}, mean);
    worker.set_model(outer_->step(worker, {.last = last, .average = target, .inner_rate = rate_of_average}, momentum));
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

void OverlappedOuter::run_eager(Worker& worker) const {
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

std::unique_ptr<Algorithm> make_overlapped_diloco(Settings& settings, const AlgorithmContext& context) {
  using Update = OverlappedOuterOptions::Update;
  auto period = read_sync_period(settings, context);
  Settings outer = settings.section({"outer", "The optimizer that steps along the averages."});
  std::shared_ptr<const OuterOptimizer> optimizer = make_outer_optimizer(outer);
  OverlappedOuterOptions options;
  options.update =
      settings.choice({"update", "Eager: a worker's own part of the late average is replaced by its newest."},
                      {{"eager", Update::eager}, {"delayed", Update::delayed}}, Update::eager);
  const StatePolicies policies = read_overlapped_policies(settings, context);
  if (options.update == Update::eager && !policies.count_alike())
    settings.fault("weights",
                   "must be \"equal\" with update = \"eager\": a worker's own part there is 1 / N of the average");
  return std::make_unique<OverlappedOuter>(std::move(period), std::move(optimizer), options, policies);
}

}  // namespace syncopate
