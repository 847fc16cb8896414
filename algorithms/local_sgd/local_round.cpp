#include "algorithms/local_sgd/local_round.hpp"

#include "algorithms/local_sgd/local_sgd.hpp"

namespace syncopate {

double take_round(Worker& worker, const SyncPeriod& period) {
  const Step length = period.at(worker.step(), worker.learning_rate(), worker.steps_left());
  double rates = 0;
  Step taken{};
  for (; taken < length && worker.budget_left(Judged::alone); ++taken) {
    rates += worker.learning_rate();
    take_local_steps(worker, 1);
  }
  return taken > 0 ? rates / static_cast<double>(taken.value()) : 0;
}

}  // namespace syncopate
