#include "algorithms/gossip/stochastic_gradient_push.hpp"

#include <algorithm>

#include "algorithms/gossip/graph_section.hpp"
#include "algorithms/gossip/push_overlap.hpp"
#include "algorithms/gossip/pushes.hpp"

namespace syncopate {

void StochasticGradientPush::run(Worker& worker) const {
  const Step overlap = options_.overlap_steps;
  const bool is_released = options_.overlap == PushOptions::Overlap::released && overlap > Step{0};
  const GossipGraphPtr graph = graph_of(worker.size());
  const double least = least_weight(options_, *graph);
  Gossip gossip(worker, options_.evaluated);
  Pushes pushes(worker, gossip, *graph);
  while (worker.budget_left()) {
    pushes.check_weight(least);
    if (is_released) exchange_as_released(worker, overlap, pushes);
    const Gradient gradient = worker.compute_step_gradient() / worker.micro_batches();
    worker.descend(gradient, {.rate_factor = 1 / pushes.weight()});
    if (!is_released) exchange_as_in_paper(worker, overlap, pushes);
    gossip.end_step(pushes.weight());
  }
  pushes.take_before(pushes.exchanges());
  if (is_released) pushes.take_what_has_come();
  pushes.mix_all();
  gossip.stop(graph->all_receivers(worker.rank()), {.weight = pushes.weight(), .others_may_wait = is_released});
}

Forecast StochasticGradientPush::forecast(const PredictionInput& input) const {
  return no_formula_but_gap(*graph_of(input.workers));
}

// As released, who is late has a say in it.
std::optional<Communicated> StochasticGradientPush::communication(const CommunicationInput& input) const {
  const Step every = std::max(options_.overlap_steps, Step{1});
  if (options_.overlap == PushOptions::Overlap::released && options_.overlap_steps > Step{0}) return std::nullopt;
  const Step exchanges = (input.steps.value() + every.value() - 1) / every.value();
  const std::int64_t messages = graph_of(input.workers)->messages_in(exchanges) + input.workers - 1;
  return Communicated{input.steps.value(), Bytes{messages * (input.parameter_bytes.value() + 8)}};
}

std::unique_ptr<Algorithm> make_stochastic_gradient_push(Settings& settings, const AlgorithmContext& context) {
  using Overlap = PushOptions::Overlap;
  constexpr std::int64_t most_steps = 1'000'000;
  PushOptions options;
  options.overlap_steps = settings.integer(
      {"overlap_steps", "How many steps a message may be under way while its receiver goes on (tau).", "steps"}, 0,
      most_steps, 0);
  options.overlap =
      settings.choice({"overlap", "How that is done: paper: a message every tau steps; released: once the last is in."},
                      {{"paper", Overlap::paper}, {"released", Overlap::released}}, options.overlap);
  if (options.overlap == Overlap::released && options.overlap_steps == Step{0})
    settings.fault("overlap", "needs overlap_steps of at least 1");
  options.graph =
      read_graph(settings, context, Mixing::column_stochastic,
                 "Who sends to whom; left out: one worker per exchange, 1, 2, 4, ... ranks further in turn.");
  options.evaluated = read_own_models(settings);
  return std::make_unique<StochasticGradientPush>(options);
}

}  // namespace syncopate
