#include "algorithms/gossip/push_overlap.hpp"

#include <algorithm>

namespace syncopate {

double least_weight(const PushOptions& options, const GossipGraph& graph) {
  const double healthy = graph.least_weight() / 8;
  if (options.overlap_steps == Step{0}) return healthy;
  return healthy * graph.least_kept() / (options.overlap == PushOptions::Overlap::paper ? 1 : 64);
}

void exchange_as_in_paper(const Worker& worker, Step overlap, Pushes& pushes) {
  const Step step = worker.step() - 1;  // that has just been taken
  if (step.value() % std::max<Step::Rep>(overlap.value(), 1) == 0) pushes.send();
  if (overlap > Step{0}) pushes.take_what_has_come();
  pushes.take_before(pushes.exchanges() - (overlap > Step{0} ? 1 : 0));
  pushes.mix_all();
}

void exchange_as_released(const Worker& worker, Step overlap, Pushes& pushes) {
  const Step begun = pushes.exchanges();
  if (begun > Step{0}) {
    pushes.take_what_has_come();
    if (worker.step() - pushes.begun_at() >= overlap) pushes.take_before(begun);
    if (!pushes.has(begun - 1)) return;
    pushes.mix_before(begun);
  }
  pushes.send();
}

}  // namespace syncopate
