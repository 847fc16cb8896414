#include "algorithms/local_sgd/cocod_sgd.hpp"

namespace syncopate {

void CocodSgd::run(Worker& worker) const {
  train_together(worker, period_->synchronous_steps(), policies_);
  AverageUnderWay average(worker, policies_);
  ModelStatePtr sent, common = worker.model();
  while (average.rounds_left()) {
    average.take_round(*period_);
    if (average.is_under_way()) {
      const ModelStatePtr mean = average.finish(), own = worker.model();
      publish(worker, policies_, mean);
      worker.set_model(worker.combine({{1, mean}, {1, own}, {-1, sent}}, own));
      common = mean;
    }
    sent = worker.model();
    average.start(sent, common);
  }
  if (average.is_under_way()) worker.set_model(average.finish());
  publish(worker, policies_);
}

std::unique_ptr<Algorithm> make_cocod_sgd(Settings& settings, const AlgorithmContext& context) {
  auto period = read_sync_period(settings, context);
  return std::make_unique<CocodSgd>(std::move(period), read_overlapped_policies(settings, context));
}

}  // namespace syncopate
