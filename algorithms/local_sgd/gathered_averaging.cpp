#include "algorithms/local_sgd/gathered_averaging.hpp"

#include <array>
#include <span>

#include "algorithms/local_sgd/local_sgd.hpp"

namespace syncopate {
namespace {

// Whether the models are still near their last average. The same answer for all: it follows from what they gather,
// and so does the budget's end, which a worker alone may see later than another.
bool stays_apart(Worker& worker, const ModelStatePtr& last, double threshold) {
  const double distance = worker.distance(worker.model(), last);
  const std::array mine = {distance * distance, worker.budget_left(Judged::alone) ? 0.0 : 1.0};
  return *worker.all_gather(mine, [&](std::span<const double> all) {
    double sum = 0, ended = 0;
    for (std::size_t i = 0; i < all.size(); i += mine.size()) {
      sum += all[i];
      ended += all[i + 1];
    }
    return sum / worker.size() <= threshold && ended == 0;  // not a number: averaged, so that it shows
  });
}

}  // namespace

void average_by_gathered_distances(Worker& worker, const DynamicOptions& options) {
  while (worker.budget_left()) {
    const ModelStatePtr last = worker.model();
    do take_local_steps(worker, options.check_every);
    while (stays_apart(worker, last, options.threshold));
    worker.average_model({.policy = options.policies.average});
    publish(worker, options.policies);
  }
}

}  // namespace syncopate
