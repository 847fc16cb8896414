#include "algorithms/synchronous/random_drop.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "algorithms/synchronous/sync_sgd.hpp"

namespace syncopate {

void RandomDrop::run(Worker& worker) const {
  while (worker.budget_left()) {
    Gradient sum = worker.compute_step_gradient();
    const bool dropped = worker.step() >= from_step_ && worker.uniform(worker.step()) < rate_;
    if (dropped) worker.discard(std::exchange(sum, {}));
    worker.all_reduce_sum(sum);
    worker.descend(sum / (worker.size() * worker.micro_batches()));
    worker.publish();
  }
}

// No time is saved: that of synchronous SGD, with fewer micro-batches.
Forecast RandomDrop::forecast(const PredictionInput& input) const {
  double rate = rate_;
  if (const auto steps = input.steps(); steps && *steps > 0)
    rate *= std::max(0.0, 1 - static_cast<double>(from_step_.value()) / static_cast<double>(steps->value()));
  Forecast forecast = SyncSgd().forecast(input);
  for (Prediction& prediction : forecast.predictions) {
    prediction.kept = 1 - rate;
    prediction.drop_rate = rate;
  }
  return forecast;
}

std::unique_ptr<Algorithm> make_random_drop(Settings& settings, const AlgorithmContext& context) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const double rate = settings.number({"drop_rate", "How likely a worker's batch is to be left out."},
                                      Range{.low = 0, .high = 1, .high_open = true});
  Step from{};
  if (const auto epoch = settings.optional_integer(
          {"from_epoch", "The first epoch in which batches are left out, instead of from_step.", "epochs"}, 0, most)) {
    if (!context.has_epochs) settings.fault("from_epoch", "needs a data set; without one, give from_step");
    if (context.steps_per_epoch) from = Step{*epoch * context.steps_per_epoch->value()};
    if (settings.has("from_step")) settings.fault("from_step", "must not be given together with from_epoch");
  } else {
    from = settings.integer({"from_step", "The first step in which batches are left out.", "steps"}, 0, most, 0);
  }
  return std::make_unique<RandomDrop>(rate, from);
}

}  // namespace syncopate
