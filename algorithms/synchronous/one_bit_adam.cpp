#include "algorithms/synchronous/one_bit_adam.hpp"

#include <algorithm>

#include "algorithms/synchronous/sync_sgd.hpp"

namespace syncopate {

void OneBitAdam::run(Worker& worker) const {
  while (worker.budget_left()) {
    const bool is_frozen = worker.step() >= freeze_step_;
    Gradient sum = worker.compute_step_gradient();
    worker.all_reduce_sum(sum, {.is_dense = !is_frozen});  // once frozen what is sent are first moments
    worker.descend(sum / (worker.size() * worker.micro_batches()), {.keeps_second_moment = is_frozen});
    worker.publish();
  }
}

Forecast OneBitAdam::forecast(const PredictionInput& input) const {
  if (!input.steps()) return Forecast::none("how many of its steps are dense depends on how many there are");
  const auto steps = static_cast<double>(std::max(Step{1}, *input.steps()).value());
  const auto dense = static_cast<double>(std::min(freeze_step_, *input.steps()).value());
  const double compressed_s =
      input.exchanges.empty() ? input.dense_all_reduce_s() : input.exchanges_s(input.exchanges.back().exchanges);
  return forecast_synchronous(input, (dense * input.dense_all_reduce_s() + (steps - dense) * compressed_s) / steps);
}

std::optional<Communicated> OneBitAdam::communication(const CommunicationInput& input) const {
  const std::int64_t dense = std::min(freeze_step_, input.steps).value(), rest = input.steps.value() - dense;
  const Bytes compressed =
      input.exchanges.empty() ? input.of_gradient() : input.of_exchanges(input.exchanges.back().exchanges);
  return Communicated{input.steps.value(), Bytes{dense * input.of_gradient().value() + rest * compressed.value()}};
}

std::unique_ptr<Algorithm> make_one_bit_adam(Settings& settings, const AlgorithmContext& context) {
  const auto freeze_step = settings.integer(
      {"freeze_step", "Steps of Adam before the second moment is frozen; of the paper's code 100,000.", "steps"}, 1,
      1'000'000'000);
  if (!context.frozen_beta1)
    settings.fault("algorithm",
                   "needs training.optimizer \"adam\" or \"adamw\" with bias_correction = false, and no weight decay "
                   "in the gradient (of adam)");
  if (context.clips_gradients)
    settings.fault("algorithm", "needs training.clip_norm = 0: what comes back once frozen is made of moments");
  return std::make_unique<OneBitAdam>(Step{freeze_step});
}

}  // namespace syncopate
