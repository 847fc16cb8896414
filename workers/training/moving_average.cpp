#include "workers/training/moving_average.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace syncopate {

double MovingAverageOptions::decay_of(std::int64_t update) const {
  const auto n = static_cast<double>(update);
  return num_updates ? std::min(decay, (1 + n) / (10 + n)) : decay;
}

MovingAverage::MovingAverage(const MovingAverageOptions& options, ModelStatePtr initial)
    : options_(options), average_(std::move(initial)), last_(average_) {}

ModelStatePtr MovingAverage::take_in(const ModelStatePtr& published, Training& training) {
  const bool lags = options_.of == MovingAverageOptions::Of::before_update;
  const ModelStatePtr taken = lags ? std::exchange(last_, published) : published;
  const double decay = options_.decay_of(updates_++);
  average_ = training.combine(std::array<WeightedState, 2>{{{decay, average_}, {1 - decay, taken}}});
  return average_;
}

std::optional<MovingAverageOptions> read_moving_average(Settings& settings, bool publishes_rounds) {
  using Of = MovingAverageOptions::Of;
  if (!settings.has("average")) return std::nullopt;
  Settings table =
      settings.section({"average", "A moving average of the published models, which is then what is evaluated."});
  MovingAverageOptions options;
  options.decay = table.number({"decay", "Share of the average that each update keeps (alpha)."},
                               Range{.low = 0, .high = 1, .high_open = true}, options.decay);
  options.of =
      table.choice({"of", "Whether it takes in the model that a step began with, or the one that the step leads to."},
                   {{"before-update", Of::before_update}, {"after-update", Of::after_update}},
                   publishes_rounds ? Of::after_update : options.of,
                   "\"before-update\"; \"after-update\" where models are published once per round");
  if (publishes_rounds && options.of == Of::before_update)
    table.fault("of",
                "must be \"after-update\": this method publishes a model once per round of local steps, and not each "
                "update");
  options.num_updates = table.flag(
      {"num_updates", "Whether the decay of update n, from 0, is at most (1 + n) / (10 + n), as in TensorFlow."},
      options.num_updates);
  return options;
}

}  // namespace syncopate
