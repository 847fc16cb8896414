#include "algorithms/gradient_coding/cyclic_repetition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "algorithms/gradient_coding/fractional_repetition.hpp"
#include "workers/linear_algebra/pivoted_qr.hpp"
#include "workers/linear_algebra/transposed_solutions.hpp"
#include "workers/process/run_failure.hpp"
#include "workers/random/sets.hpp"
#include "workers/random/standard_normal.hpp"

namespace syncopate {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// H: (s, N) standard normal, the last column such that each row sums to 0: the vector of ones is in its null space.
Matrix draw_null_space(int workers, int stragglers, const RandomStream& stream) {
  Matrix h(stragglers, workers);
  fill_standard_normal(stream, 0, h.values);
  for (auto row = h.values.begin(); row != h.values.end(); row += workers)
    row[workers - 1] = -std::accumulate(row, row + workers - 1, 0.0);
  return h;
}

// B: (N, N), row i with 1 at i and s more entries after it that make H B[i] = 0.
Matrix encoding(const Matrix& h) {
  Matrix b(h.columns, h.columns);
  for (int i = 0; i < h.columns; ++i) {
    b(i, i) = 1;
    const std::vector<double> x = PivotedQr(h.columns_from(i + 1, h.rows)).solve(h.column(i));
    for (int k = 0; k < h.rows; ++k) b(i, (i + 1 + k) % h.columns) = -x[at(k)];
  }
  return b;
}

// a with a^T B = 1^T that vanishes at the stragglers, for the others in the order of their arrival.
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
  for (const Rank worker : arrived) weights.push_back(a[at(worker.value)]);
  return weights;
}

}  // namespace

std::optional<GradientCode> cyclic_repetition(int workers, int stragglers, std::uint64_t seed) {
  constexpr int most_draws = 50, most_sets = 1000;
  if (stragglers == 0) return fractional_repetition(workers, 0);
  for (int draw = 0; draw < most_draws; ++draw) {
    RandomStream stream{.seed = seed, .purpose = Purpose::algorithm, .stream = 2, .worker = {}, .step = Step{draw}};
    const Matrix b = encoding(draw_null_space(workers, stragglers, stream));
    const TransposedSolutions decodings(b, workers - stragglers, std::vector<double>(at(workers), 1.0));
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

}  // namespace syncopate
