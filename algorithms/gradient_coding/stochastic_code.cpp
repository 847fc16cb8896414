#include "algorithms/gradient_coding/stochastic_code.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>

#include "workers/random/sets.hpp"

namespace syncopate {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// Of parts on the workers p + offset (mod N): over the distances of two parts, the sum of the squared number of
// workers that they share.
std::int64_t unevenness(const std::vector<int>& offsets, int workers) {
  std::vector<std::int64_t> shared(at(workers));
  for (const int a : offsets)
    for (const int b : offsets)
      if (a != b) ++shared[at((a - b + workers) % workers)];
  return std::transform_reduce(shared.begin(), shared.end(), std::int64_t{0}, std::plus<>(),
                               [](std::int64_t count) { return count * count; });
}

// [part]: the workers that hold it.
std::vector<std::vector<int>> place_independently(int workers, int copies, std::uint64_t seed) {
  std::vector<std::vector<int>> holders;
  for (int part = 0; part < workers; ++part)
    holders.push_back(
        draw_set(workers, copies, {.seed = seed, .purpose = Purpose::algorithm, .stream = 3, .worker = Rank{part}}));
  return holders;
}

std::vector<std::vector<int>> place_evenly(int workers, int copies, std::uint64_t seed) {
  constexpr int draws = 100;
  std::vector<int> best;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int draw = 0; draw < draws; ++draw) {
    std::vector<int> offsets =
        draw_set(workers, copies, {.seed = seed, .purpose = Purpose::algorithm, .stream = 4, .step = Step{draw}});
    const std::int64_t found = unevenness(offsets, workers);
    if (found >= least) continue;
    least = found;
    best = std::move(offsets);
  }
  std::vector<std::vector<int>> holders(at(workers), best);
  for (int part = 0; part < workers; ++part)
    for (int& holder : holders[at(part)]) holder = (holder + part) % workers;
  return holders;
}

}  // namespace

GradientCode stochastic_code(int workers, const StochasticCodeOptions& options) {
  const auto holders = options.placement == Placement::balanced
                           ? place_evenly(workers, options.copies, options.seed)
                           : place_independently(workers, options.copies, options.seed);
  const double weight = 1 / (options.copies * (1 - options.straggler_share));
  GradientCode code = code_of_single_workers(workers, options.needed);
  code.exact = false;
  code.merges = options.copies > 1;
  for (int part = 0; part < workers; ++part)
    for (const int holder : holders[at(part)]) code.parts[Rank{holder}].push_back({part, weight});
  code.decode = [](std::span<const Rank> arrived) { return std::vector<double>(arrived.size(), 1.0); };
  return code;
}

}  // namespace syncopate
