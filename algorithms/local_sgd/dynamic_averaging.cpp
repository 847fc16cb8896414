#include "algorithms/local_sgd/dynamic_averaging.hpp"

#include <array>
#include <limits>
#include <span>

#include "algorithms/local_sgd/local_sgd.hpp"

namespace syncopate {

void DynamicAveraging::run(Worker& worker) const {
  while (worker.budget_left()) {
    const ModelStatePtr last = worker.model();
    do take_local_steps(worker, check_every_);
    while (stays_apart(worker, last));
    worker.average_model({.policy = policies_.average});
    publish(worker, policies_);
  }
}

// Whether the models are still near their last average. The same answer for all: it follows from what they gather,
// and so does the budget's end, which a worker alone may see later than another.
bool DynamicAveraging::stays_apart(Worker& worker, const ModelStatePtr& last) const {
  const double distance = worker.distance(worker.model(), last);
  const std::array mine = {distance * distance, worker.budget_left(Judged::alone) ? 0.0 : 1.0};
  return *worker.all_gather(mine, [&](std::span<const double> all) {
    double sum = 0, ended = 0;
    for (std::size_t i = 0; i < all.size(); i += mine.size()) {
      sum += all[i];
      ended += all[i + 1];
    }
    return sum / worker.size() <= threshold_ && ended == 0;  // not a number: averaged, so that it shows
  });
}

std::unique_ptr<Algorithm> make_dynamic_averaging(Settings& settings, const AlgorithmContext& context) {
  if (context.time_only)
    settings.fault("algorithm", "needs a model: it measures how far the workers' parameters are apart");
  if (!context.budget_ends_alone)
    settings.fault("algorithm",
                   "needs a budget in steps, epochs, seconds or samples: models that stay near each other are never "
                   "sent, so that a budget of bytes never ends");
  const double threshold =
      settings.number({"threshold", "Mean squared distance from the last average beyond which models are averaged."},
                      Range::at_least(0));
  const Step check_every =
      settings.integer({"check_every", "Steps from one look at the distances to the next.", "steps"}, 1,
                       std::numeric_limits<Step::Rep>::max());
  return std::make_unique<DynamicAveraging>(threshold, check_every, read_state_policies(settings));
}

}  // namespace syncopate
