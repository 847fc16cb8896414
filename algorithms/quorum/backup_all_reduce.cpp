#include "algorithms/quorum/backup_all_reduce.hpp"

#include <utility>

namespace syncopate {

void BackupAllReduce::run(Worker& worker) const {
  while (worker.budget_left()) {
    Gradient gradient = worker.compute_step_gradient();
    for (const PartialSum& round :
         worker.partial_all_reduce_sum(std::move(gradient), {.quorum = quorum_}, LateGradient::drop))
      worker.descend(round.sum / (round.contributors * worker.micro_batches()));
    worker.publish();
  }
}

Forecast BackupAllReduce::forecast(const PredictionInput& input) const {
  return predict_quorum(quorum_, false, {.around_s = input.all_reduce_s()}, input);
}

std::unique_ptr<Algorithm> make_backup_all_reduce(Settings& settings, const AlgorithmContext& context) {
  const auto backups =
      settings.integer({"backups", "How many workers a step does not wait for (b)."}, 0,
                       Stated(context.workers - 1, "workers - 1"));  // at least one gradient makes a step
  return std::make_unique<BackupAllReduce>(context.workers - static_cast<int>(backups));
}

}  // namespace syncopate
