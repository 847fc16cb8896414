#include "algorithms/one_shot.hpp"

namespace syncopate {

void OneShot::run(Worker& worker) const {
  while (worker.budget_left()) worker.descend(worker.compute_step_gradient() / worker.micro_batches());
  worker.average_model({});  // momentum stays with each worker, BatchNorm statistics are averaged
  worker.publish();
}

std::unique_ptr<Algorithm> make_one_shot(Settings&, const AlgorithmContext&) { return std::make_unique<OneShot>(); }

}  // namespace syncopate
