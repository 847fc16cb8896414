#include "algorithms/method/algorithm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "workers/compression/compressor.hpp"

namespace syncopate {

namespace {

std::int64_t product(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  return a <= most / b ? a * b : most;
}

}  // namespace

void Algorithm::serve(Server&) const { throw std::logic_error("this algorithm has no server"); }

WeightedState weighted_mean(const Participant& by, std::vector<WeightedState> terms) {
  double total = 0;
  for (const WeightedState& term : terms) total += term.weight;
  for (WeightedState& term : terms) term.weight /= total;
  return {total, by.combine(terms)};
}

void compress(RunContext& context, const Algorithm& algorithm) {
  const auto& compression = algorithm.compression();
  if (!compression) return;
  const int workers = context.cluster.workers(), slices = algorithm.traits().compressed_slices();
  auto compressors = make_compressors(*compression, context.training, context.seed, workers, slices);
  if (compression->of_averages())
    context.average_compressors = std::move(compressors);
  else if (compression->of_messages())
    context.message_compressors = std::move(compressors);
  else
    context.compressor = compressors.front();
}

RunTotals run_algorithm(const Algorithm& algorithm, const RunContext& given) {
  RunContext context = given;
  context.average = algorithm.average();
  compress(context, algorithm);
  const Cluster::Program work = [&](Rank rank) {
    Worker worker(context, rank);
    algorithm.run(worker);
    if (context.observer) context.observer->on_individual_models_end(rank);
  };
  Cluster::Program serve;
  if (algorithm.traits().servers > 0)
    serve = [&](Rank rank) { run_server(context, rank, [&](Server& server) { algorithm.serve(server); }); };
  return context.cluster.run(work, serve);
}

BudgetCheck BudgetCheck::of_steps(std::optional<Step> steps, int workers) {
  if (!steps) return {};
  return {.gradients = product(steps->value(), workers)};
}

BudgetCheck BudgetCheck::of(std::int64_t count) const {
  return {.gradients = gradients, .in_one = product(in_one, count)};
}

std::int64_t BudgetCheck::check(Settings& settings, std::string_view key, std::int64_t count,
                                std::int64_t together) const {
  if (!gradients) return count;
  const std::int64_t most = product(std::max<std::int64_t>(*gradients / in_one, 1), together);
  if (count <= most) return count;
  std::string why = "the whole budget has no more gradients";
  if (in_one > 1)
    why = fmt::format("the whole budget has {} gradients, and one unit of this key needs {}", *gradients, in_one);
  if (together > 1)
    why = fmt::format("the whole budget has {} gradients, and {} units of this key need {}", *gradients, together,
                      in_one);
  settings.fault(key, fmt::format("must be at most {}: {}", most, why));
  return most;
}

}  // namespace syncopate
