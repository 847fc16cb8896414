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
  using Activation = EagerOptions::Activation;
  constexpr std::int64_t every_of_released_code = 32;
  EagerOptions options;
  options.activation =
      settings
          .choice<Activation>({"activation", "Whom an all-reduce waits for: the first, or a random one."},
                              {{"solo", Activation::solo}, {"majority", Activation::majority}})
          .value_or(Activation::solo);
  options.late =
      settings.choice({"late", "Whether a late gradient is added to the next one or dropped."},
                      {{"accumulate", LateGradient::accumulate}, {"drop", LateGradient::drop}}, options.late);
  options.synchronous_every =
      settings.integer({"synchronous_every", "Every how many steps all wait for all; 0: never.", "steps"}, 0,
                       std::numeric_limits<std::int64_t>::max(),
                       Stated(options.activation == Activation::majority ? 0 : every_of_released_code,
                              "32 with \"solo\", 0 with \"majority\""));
  return std::make_unique<EagerSgd>(options);
}

}  // namespace syncopate
