#include "algorithms/gradient_coding/codes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>

#include "workers/base/linear_algebra.hpp"
#include "workers/base/process.hpp"
#include "workers/base/random.hpp"

namespace syncopate {

namespace {

std::size_t index_of(int i) { return static_cast<std::size_t>(i); }

// A code, still without parts, in which each worker is a group of its own.
GradientCode code_of_single_workers(int workers, int needed) {
  GradientCode code{.parts = ByRank<std::vector<GradientCode::Part>>(workers), .group = ByRank<int>(workers)};
  code.groups = workers;
  code.needed = needed;
  for (const Rank worker : Ranks(workers)) code.group[worker] = worker.value;
  return code;
}

// Draws H: (s, N), standard normal, with the last column chosen so that each row sums to 0. So the vector of ones is in
// the null space of H.
Matrix draw_null_space(int workers, int stragglers, const RandomStream& stream) {
  Matrix h(stragglers, workers);
  fill_standard_normal(stream, 0, h.values);
  for (auto row = h.values.begin(); row != h.values.end(); row += workers)
    row[workers - 1] = -std::accumulate(row, row + workers - 1, 0.0);
  return h;
}

// Returns B: (N, N). Row i has a 1 at i and s more entries after it (mod N) such that H B[i] = 0.
Matrix encoding(const Matrix& h) {
  Matrix b(h.columns, h.columns);
  for (int i = 0; i < h.columns; ++i) {
    b(i, i) = 1;
    const std::vector<double> x = PivotedQr(h.columns_from(i + 1, h.rows)).solve(h.column(i));
    for (int k = 0; k < h.rows; ++k) b(i, (i + 1 + k) % h.columns) = -x[index_of(k)];
  }
  return b;
}

// Returns the weights a with a^T B = 1^T that are 0 at the stragglers, for the arrived workers in order of arrival.
std::vector<double> decode(const TransposedSolutions& decodings, int workers, double largest_part,
                           std::span<const Rank> arrived) {
  constexpr double far_beyond = 1000;
  std::vector<int> stragglers;
  for (const Rank worker : Ranks(workers))
    if (std::ranges::find(arrived, worker) == arrived.end()) stragglers.push_back(worker.value);
  const std::vector<double> a = decodings.vanishing_at(stragglers);
  if (!(largest_magnitude(a) * largest_part <= far_beyond * largest_cyclic_weight))
    throw RunFailure(
        fmt::format("the cyclic code has weights up to {:.1e} for these stragglers, too large for double precision; "
                    "choose another code_seed",
                    largest_magnitude(a)));
  std::vector<double> weights;
  for (const Rank worker : arrived) weights.push_back(a[index_of(worker.value)]);
  return weights;
}

// How unevenly pairs of parts share workers if part p is on the workers p + offset (mod N): the sum, over all distances
// d > 0, of the squared number of workers that parts p and p + d share.
std::int64_t unevenness(const std::vector<int>& offsets, int workers) {
  std::vector<std::int64_t> shared(index_of(workers));
  for (const int a : offsets)
    for (const int b : offsets)
      if (a != b) ++shared[index_of((a - b + workers) % workers)];
  return std::transform_reduce(shared.begin(), shared.end(), std::int64_t{0}, std::plus<>(),
                               [](std::int64_t count) { return count * count; });
}

// Returns the workers that hold each part, drawn separately for each part.
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
  std::vector<std::vector<int>> holders(index_of(workers), best);
  for (int part = 0; part < workers; ++part)
    for (int& holder : holders[index_of(part)]) holder = (holder + part) % workers;
  return holders;
}

}  // namespace

std::optional<GradientCode> cyclic_repetition(int workers, int stragglers, std::uint64_t seed) {
  constexpr int most_draws = 50, most_sets = 1000;
  if (stragglers == 0) return fractional_repetition(workers, 0);
  for (int draw = 0; draw < most_draws; ++draw) {
    RandomStream stream{.seed = seed, .purpose = Purpose::algorithm, .stream = 2, .worker = {}, .step = Step{draw}};
    const Matrix b = encoding(draw_null_space(workers, stragglers, stream));
    const TransposedSolutions decodings(b, workers - stragglers, std::vector<double>(index_of(workers), 1.0));
    const double largest_part = largest_magnitude(b.values);
    const auto is_bounded = [&](std::span<const int> set) {
      return largest_magnitude(decodings.vanishing_at(set)) * largest_part <= largest_cyclic_weight;
    };
    stream.worker = Rank{1};
    if (!holds_for_sets(workers, stragglers, most_sets, stream, is_bounded)) continue;
    GradientCode code = code_of_single_workers(workers, workers - stragglers);
    code.in_double_precision = true;
    for (int i = 0; i < workers; ++i)
      for (int k = i; k <= i + stragglers; ++k) code.parts[Rank{i}].push_back({k % workers, b(i, k % workers)});
    code.decode = [=](std::span<const Rank> arrived) { return decode(decodings, workers, largest_part, arrived); };
    return code;
  }
  return std::nullopt;
}

GradientCode fractional_repetition(int workers, int stragglers) {
  assert(workers % (stragglers + 1) == 0);
  const int size = stragglers + 1;
  GradientCode code = code_of_single_workers(workers, workers / size);
  code.groups = code.needed;
  code.merges = false;
  for (const Rank worker : Ranks(workers)) {
    const int group = code.group[worker] = worker.value / size;
    for (int part = group * size; part < (group + 1) * size; ++part) code.parts[worker].push_back({part});
  }
  code.decode = [](std::span<const Rank> arrived) { return std::vector<double>(arrived.size(), 1.0); };
  return code;
}

GradientCode ignore_stragglers(int workers, int stragglers) {
  GradientCode code = code_of_single_workers(workers, workers - stragglers);
  code.exact = code.merges = false;
  for (const Rank worker : Ranks(workers)) code.parts[worker] = {{worker.value}};
  code.decode = [workers](std::span<const Rank> arrived) {
    const auto count = static_cast<double>(arrived.size());
    return std::vector<double>(arrived.size(), workers / count);
  };
  return code;
}

GradientCode stochastic_code(int workers, const StochasticCodeOptions& options) {
  const auto holders = options.placement == Placement::balanced
                           ? place_evenly(workers, options.copies, options.seed)
                           : place_independently(workers, options.copies, options.seed);
  const double weight = 1 / (options.copies * (1 - options.straggler_share));
  GradientCode code = code_of_single_workers(workers, options.needed);
  code.exact = false;
  code.merges = options.copies > 1;
  for (int part = 0; part < workers; ++part)
    for (const int holder : holders[index_of(part)]) code.parts[Rank{holder}].push_back({part, weight});
  code.decode = [](std::span<const Rank> arrived) { return std::vector<double>(arrived.size(), 1.0); };
  return code;
}

}  // namespace syncopate
