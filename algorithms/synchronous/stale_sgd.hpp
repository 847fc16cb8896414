// Stale SGD: synchronous SGD with gradients of an old model, to show the effect of staleness alone. One worker is
// enough.
// Source:  Chen et al. 2016, "Revisiting Distributed Synchronous SGD", section 2.1 and Figure 2: old gradients on one
//          machine, their staleness ramped up over the first three epochs.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: staleness in steps.
// Cost:    as synchronous SGD; each worker also stores one model per step of staleness.
// Differs: how staleness varies in the paper is not known. Here it is uniform over `staleness` +- `spread`, the same
//          for all workers, rounded to whole steps; the ramp is linear.
// Checks:  a staleness of 0 equals synchronous SGD bit for bit; the recurrence of delayed SGD in double precision; with
//          staleness s it is stable on a quadratic of curvature a below a rate of 2 sin(pi / (4 s + 2)) / a.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct StaleOptions {
  double staleness = 0;
  double spread = 0;  // at most `staleness`
  Step ramp_steps{};  // staleness grows from 0 over these steps
};

class StaleSgd : public Algorithm {
 public:
  explicit StaleSgd(const StaleOptions& options) : options_(options) {}

  void run(Worker& worker) const override {
    const auto most = static_cast<std::size_t>(std::ceil(options_.staleness + options_.spread)) + 1;
    std::deque<ModelStatePtr> models;  // the newest first
    while (worker.budget_left()) {
      models.push_front(worker.model());
      if (models.size() > most) models.pop_back();
      const auto staleness = static_cast<std::size_t>(staleness_at(worker));
      if (staleness > 0) worker.set_model(models[std::min(staleness, models.size() - 1)]);
      Gradient sum = worker.compute_step_gradient();
      if (staleness > 0) worker.set_model(models.front());
      worker.all_reduce_sum(sum);
      worker.descend(sum / (worker.size() * worker.micro_batches()));
      worker.publish();
    }
  }

  Traits traits() const override {
    return {.follows_clock = false,
            .sums_gradients = true,
            .can_overlap_backward = true,
            .held = {.models = 0, .moments = 0, .states = std::ceil(options_.staleness + options_.spread)}};
  }

 private:
  std::int64_t staleness_at(const Worker& worker) const {
    const auto step = static_cast<double>(worker.step().value()),
               ramp = static_cast<double>(options_.ramp_steps.value());
    const double grown = step < ramp ? step / ramp : 1;
    const double drawn = options_.spread > 0 ? 2 * worker.uniform(worker.step(), Drawn::together) - 1 : 0;
    return std::llround(grown * (options_.staleness + options_.spread * drawn));
  }

  StaleOptions options_;
};

inline std::unique_ptr<Algorithm> make_stale_sgd(Settings& settings, const AlgorithmContext& context) {
  constexpr double most = 10'000;
  StaleOptions options;
  options.staleness = settings.number({"staleness", "Mean age of the model at which gradients are computed.", "steps"},
                                      Range::between(0, most));
  options.spread = settings.number(
      {"spread", "Staleness is drawn uniformly from `staleness` - spread to `staleness` + spread.", "steps"},
      Range::between(0, most), 0.0);
  if (options.spread > options.staleness) settings.fault("spread", "must be at most `staleness`");
  constexpr double usual_epochs = 3;
  std::optional<double> epochs = settings.optional_number(
      {"ramp_epochs", "Over how many epochs the staleness grows linearly from 0.", "epochs", "3 with a data set"},
      {.low = 0, .high = 1e6});
  const auto steps = settings.optional_integer(
      {"ramp_steps", "Over how many steps the staleness grows linearly from 0, instead of ramp_epochs.", "steps",
       "0 without a data set"},
      0, 1'000'000'000);
  if (epochs && !context.has_epochs) settings.fault("ramp_epochs", "needs a data set; without one, give ramp_steps");
  if (epochs && steps) settings.fault("ramp_steps", "must not be given together with ramp_epochs");
  if (!epochs && !steps && context.has_epochs) epochs = usual_epochs;
  options.ramp_steps = steps.value_or(0);
  if (epochs && context.steps_per_epoch)
    options.ramp_steps = std::llround(*epochs * static_cast<double>(context.steps_per_epoch->value()));
  return std::make_unique<StaleSgd>(options);
}

}  // namespace syncopate
