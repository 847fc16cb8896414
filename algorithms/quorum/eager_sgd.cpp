#include "algorithms/quorum/eager_sgd.hpp"

#include <limits>
#include <utility>

namespace syncopate {

void EagerSgd::run(Worker& worker) const {
  while (worker.budget_left()) {
    Gradient gradient = worker.compute_step_gradient();
    for (const PartialSum& round :
         worker.partial_all_reduce_sum(std::move(gradient), activation(worker), options_.late))
      worker.descend(round.sum / (worker.size() * worker.micro_batches()));
    worker.publish();
  }
}

// Of the round that this worker arrives at: rounds are numbered like its steps, on all workers alike.
Activation EagerSgd::activation(const Worker& worker) const {
  const Step round = worker.step();
  const Step every = options_.synchronous_every;
  if (every > Step{0} && (round.value() + 1) % every.value() == 0) return {.quorum = worker.size()};
  if (options_.activation == EagerOptions::Activation::solo) return {.quorum = 1};
  return {.rank = Rank{static_cast<int>(worker.uniform(round, Drawn::together) * worker.size())}};
}

std::unique_ptr<Algorithm> make_eager_sgd(Settings& settings, const AlgorithmContext&) {
  static constexpr std::string_view activations[] = {"solo", "majority"};
  static constexpr std::string_view late[] = {"accumulate", "drop"};
  constexpr std::int64_t every_of_released_code = 32;
  EagerOptions options;
  const bool majority = settings.choice("activation", activations) == "majority";
  if (majority) options.activation = EagerOptions::Activation::majority;
  if (settings.choice("late", late, "accumulate") == "drop") options.late = LateGradient::drop;
  options.synchronous_every = settings.integer("synchronous_every", 0, std::numeric_limits<std::int64_t>::max(),
                                               majority ? 0 : every_of_released_code);
  return std::make_unique<EagerSgd>(options);
}

}  // namespace syncopate
