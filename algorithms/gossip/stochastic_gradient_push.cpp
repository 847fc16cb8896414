#include "algorithms/gossip/stochastic_gradient_push.hpp"

#include "algorithms/gossip/push_overlap.hpp"
#include "algorithms/gossip/pushes.hpp"

namespace syncopate {
void StochasticGradientPush::run(Worker& worker) const {
  const Step overlap = options_.overlap_steps;
  const bool is_released = options_.overlap == PushOptions::Overlap::released && overlap > Step{0};
  Gossip gossip(worker, options_.evaluated);
  Pushes pushes(worker, gossip);
  while (worker.budget_left()) {
    pushes.check_weight(least_weight(options_));
    if (is_released) exchange_as_released(worker, overlap, pushes);
    worker.descend(worker.compute_step_gradient() / worker.micro_batches(), {.rate_factor = 1 / pushes.weight()});
    if (!is_released) exchange_as_in_paper(worker, overlap, pushes);
    worker.report_steps();
    gossip.publish_own(pushes.weight());
  }
  pushes.take_before(pushes.exchanges());
  if (is_released) pushes.take_what_has_come();
  pushes.mix_all();
  gossip.stop(pushes.graph().receivers(worker.rank()), {.weight = pushes.weight(), .others_may_wait = is_released});
}

std::unique_ptr<Algorithm> make_stochastic_gradient_push(Settings& settings, const AlgorithmContext&) {
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
  options.evaluated = read_own_models(settings);
  return std::make_unique<StochasticGradientPush>(options);
}

}  // namespace syncopate
