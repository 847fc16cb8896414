#include "algorithms/gossip/ad_psgd.hpp"

#include <fmt/format.h>

#include <vector>

#include "algorithms/gossip/graph_section.hpp"
#include "algorithms/local_sgd/round_prediction.hpp"

namespace syncopate {
namespace {

constexpr int most_workers_of_graph = 65'536;  // whose neighbours are listed

}  // namespace

void AdPsgd::run(Worker& worker) const {
  const TwoSides by_parity = TwoSides::by_parity(worker.size());
  const TwoSides& sides = options_.sides ? *options_.sides : by_parity;
  Gossip gossip(worker, options_.evaluated);
  PairExchanges exchanges(worker, gossip, sides);
  while (worker.budget_left()) {
    exchanges.begin_step();
    Gradient sum;
    for (int m = 0; m < worker.micro_batches(); ++m) {
      sum += *worker.compute_gradient();
      exchanges.take_what_has_come();
    }
    if (options_.overlap_steps) exchanges.wait_for_older_than(*options_.overlap_steps);
    exchanges.end_step();
    worker.descend(sum / worker.micro_batches());
    gossip.end_step();
  }
  exchanges.end();
  gossip.stop(worker.rank() == Rank{0} ? sides.all_partners(Rank{0}) : std::vector<Rank>(),  // who else may wait
              {.others_may_wait = true});
}

// All take their steps alone, and the last model comes to worker 0, after its latency: a round as long as the run.
Forecast AdPsgd::forecast(const PredictionInput& input) const {
  if (options_.overlap_steps)
    return Forecast::none("active workers wait for answers, which come when their partners can");
  const double last_s = input.workers == 1 ? 0 : to_seconds(input.network.message({.from = Rank{1}, .to = Rank{0}}));
  const auto by_normal = [&](Step length) -> std::optional<RoundTime> {
    const double steps_s = expected_slowest_sum(input.times, static_cast<double>(length.value()));
    return RoundTime{.time_s = steps_s + last_s, .communication_s = last_s};
  };
  const auto by_drawn = [&](Step length) -> std::optional<RoundTime> {
    const auto drawn = sample_rounds(input.times, length.value());
    if (!drawn) return input.times.has_variance ? by_normal(length) : std::nullopt;
    return RoundTime{.time_s = drawn->time_s.mean + last_s, .communication_s = last_s, .error_s = drawn->time_s.error};
  };
  return predict_rounds(*make_swap_period(Step{0}), {"slowest normal sum", by_normal, "slowest sampled sum", by_drawn},
                        input);
}

std::unique_ptr<Algorithm> make_ad_psgd(Settings& settings, const AlgorithmContext& context) {
  PairOptions options;
  const GossipGraphPtr graph =
      read_graph(settings, context, Mixing::in_pairs,
                 "Who may meet whom, with two sides; left out: all pairs of an even rank and an odd one.");
  if (graph && context.workers_known && graph->workers() > most_workers_of_graph) {
    settings.fault("graph", fmt::format("is for at most {} workers, found {}; left out, for any number",
                                        most_workers_of_graph, graph->workers()));
  } else if (graph && context.workers_known) {
    if (auto sides = TwoSides::of(*graph))
      options.sides = std::make_shared<TwoSides>(*std::move(sides));
    else
      settings.fault("graph", "must have two sides, within which no workers are linked (bipartite)");
  }
  constexpr std::int64_t most_steps = 1'000'000;
  if (const auto overlap = settings.optional_integer(
          {"overlap_steps", "After how many steps an active worker waits for the answer that it has asked for.",
           "steps", "it never waits"},
          0, most_steps))
    options.overlap_steps = Step{*overlap};
  options.evaluated = read_own_models(settings);
  return std::make_unique<AdPsgd>(std::move(options));
}

}  // namespace syncopate
