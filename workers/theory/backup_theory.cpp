#include "workers/theory/backup_theory.hpp"

#include <stdexcept>

namespace syncopate {

StepsNeeded steps_on_a_line(int quorum_a, double steps_a, int quorum_b, double steps_b) {
  if (quorum_a == quorum_b) throw std::invalid_argument("a line needs two different numbers of gradients");
  const double slope = (steps_b - steps_a) / (quorum_b - quorum_a);
  return [=](int quorum) { return steps_a + slope * (quorum - quorum_a); };
}

BestQuorum best_quorum(int machines, int lowest, const Quantile& worker_time, const StepsNeeded& steps,
                       double communication) {
  if (lowest < 1 || lowest > machines) throw std::invalid_argument("a quorum must be between 1 and the machines");
  BestQuorum best;
  for (int quorum = lowest; quorum <= machines; ++quorum) {
    const double step_time = expected_order_statistic(worker_time, quorum, machines);
    const double total = steps(quorum) * (step_time + communication);
    if (best.quorum == 0 || total < best.total_time) best = {quorum, step_time, total};
  }
  return best;
}

}  // namespace syncopate
