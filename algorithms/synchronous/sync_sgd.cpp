#include "algorithms/synchronous/sync_sgd.hpp"

namespace syncopate {

void SyncSgd::run(Worker& worker) const {
  while (worker.budget_left()) {
    Gradient sum = worker.compute_step_gradient();
    worker.all_reduce_sum(sum);
    worker.descend(sum / (worker.size() * worker.micro_batches()));
    worker.publish();
  }
}

std::unique_ptr<Algorithm> make_sync_sgd(Settings&, const AlgorithmContext&) { return std::make_unique<SyncSgd>(); }

}  // namespace syncopate
