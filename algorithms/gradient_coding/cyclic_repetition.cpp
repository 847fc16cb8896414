#include "algorithms/gradient_coding/cyclic_repetition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "algorithms/gradient_coding/pivoted_qr.hpp"
#include "workers/process/run_failure.hpp"
#include "workers/random/standard_normal.hpp"

namespace syncopate {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// H: (s, N) standard normal, the last column such that each row sums to 0: the vector of ones is in its null space.
Matrix draw_null_space(int workers, int stragglers, const RandomStream& stream) {
  Matrix h(stragglers, workers);
  fill_standard_normal(stream, 0, h.values);
  for (int row = 0; row < stragglers; ++row) {
    h(row, workers - 1) = 0;
    for (int column = 0; column < workers - 1; ++column) h(row, workers - 1) -= h(row, column);
  }
  return h;
}

// B: (N, N), row i with 1 at i and s more entries after it that make H B[i] = 0.
Matrix encoding(const Matrix& h) {
  const int stragglers = h.rows, workers = h.columns;
  Matrix b(workers, workers);
  for (int i = 0; i < workers; ++i) {
    b(i, i) = 1;
    Matrix others(stragglers, stragglers);
    std::vector<double> right(at(stragglers));
    for (int row = 0; row < stragglers; ++row) {
      right[at(row)] = -h(row, i);
      for (int k = 0; k < stragglers; ++k) others(row, k) = h(row, (i + 1 + k) % workers);
    }
    const std::vector<double> x = PivotedQr(std::move(others)).solve(std::move(right));
    for (int k = 0; k < stragglers; ++k) b(i, (i + 1 + k) % workers) = x[at(k)];
  }
  return b;
}

// All a with a^T B = 1^T are base + combinations of the s directions; those that vanish at s given stragglers
// are found by s equations. The directions are orthonormal and the base is orthogonal to them, so that nothing
// in this is larger than its result.
class CyclicDecoder {
 public:
  CyclicDecoder(Matrix b, int stragglers) : b_(std::move(b)), stragglers_(stragglers) {
    const PivotedQr qr(b_);
    base_ = qr.solve_transposed(std::vector<double>(at(b_.rows), 1.0), b_.rows - stragglers);
    for (int i = 0; i < stragglers; ++i) directions_.push_back(qr.q_column(b_.rows - stragglers + i));
  }

  const Matrix& encoding() const { return b_; }
  int stragglers() const { return stragglers_; }

  // a: (N,), 0 for the stragglers, which are s different ones.
  std::vector<double> weights(std::span<const int> stragglers) const {
    Matrix at_stragglers(stragglers_, stragglers_);
    std::vector<double> right(at(stragglers_));
    for (int row = 0; row < stragglers_; ++row) {
      right[at(row)] = -base_[at(stragglers[at(row)])];
      for (int k = 0; k < stragglers_; ++k) at_stragglers(row, k) = directions_[at(k)][at(stragglers[at(row)])];
    }
    const std::vector<double> factors = PivotedQr(std::move(at_stragglers)).solve(std::move(right));
    std::vector<double> a = base_;
    for (int k = 0; k < stragglers_; ++k)
      for (int i = 0; i < b_.rows; ++i) a[at(i)] += factors[at(k)] * directions_[at(k)][at(i)];
    for (const int straggler : stragglers) a[at(straggler)] = 0;
    return a;
  }

 private:
  Matrix b_;
  int stragglers_;
  std::vector<double> base_;
  std::vector<std::vector<double>> directions_;
};

// Infinity where a value is not a number.
double largest(std::span<const double> values) {
  double result = 0;
  for (const double value : values)
    result = std::max(result, std::isnan(value) ? std::numeric_limits<double>::infinity() : std::abs(value));
  return result;
}

// The next set in lexicographic order; false after the last.
bool advance(std::vector<int>& set, int count) {
  const int size = static_cast<int>(set.size());
  int i = size - 1;
  while (i >= 0 && set[at(i)] == count - size + i) --i;
  if (i < 0) return false;
  std::iota(set.begin() + i, set.end(), set[at(i)] + 1);
  return true;
}

double number_of_sets(int count, int chosen) {
  double sets = 1;
  for (int i = 0; i < chosen; ++i) sets *= static_cast<double>(count - i) / (i + 1);
  return std::round(sets);
}

bool is_well_conditioned(const CyclicDecoder& decoder, const RandomStream& stream) {
  constexpr int most_sets = 1000;
  const int workers = decoder.encoding().rows, stragglers = decoder.stragglers();
  const double largest_part = largest(decoder.encoding().values);
  const auto is_bounded = [&](std::span<const int> set) {
    return largest(decoder.weights(set)) * largest_part <= largest_cyclic_weight;
  };
  if (number_of_sets(workers, stragglers) > most_sets) {
    for (int i = 0; i < most_sets; ++i)
      if (!is_bounded(draw_set(workers, stragglers, stream, static_cast<std::uint32_t>(i * stragglers)))) return false;
    return true;
  }
  std::vector<int> set(at(stragglers));
  std::iota(set.begin(), set.end(), 0);
  do {
    if (!is_bounded(set)) return false;
  } while (advance(set, workers));
  return true;
}

std::vector<double> decode(const CyclicDecoder& decoder, std::span<const Rank> arrived) {
  constexpr double far_beyond = 1000;
  const Matrix& b = decoder.encoding();
  assert(static_cast<int>(arrived.size()) == b.rows - decoder.stragglers());
  std::vector<char> is_here(at(b.rows));
  for (const Rank worker : arrived) is_here[at(worker.value)] = 1;
  std::vector<int> stragglers;
  for (int i = 0; i < b.rows; ++i)
    if (!is_here[at(i)]) stragglers.push_back(i);
  const std::vector<double> a = decoder.weights(stragglers);
  if (!(largest(a) * largest(b.values) <= far_beyond * largest_cyclic_weight))
    throw RunFailure(
        fmt::format("the cyclic code has weights up to {:.1e} for these stragglers, too large for double precision; "
                    "choose another code_seed",
                    largest(a)));
  std::vector<double> weights;
  for (const Rank worker : arrived) weights.push_back(a[at(worker.value)]);
  return weights;
}

GradientCode code_of(std::shared_ptr<const CyclicDecoder> decoder) {
  const Matrix& b = decoder->encoding();
  const int stragglers = decoder->stragglers();
  GradientCode code;
  code.groups = b.rows;
  code.needed = b.rows - stragglers;
  code.wide = code.merges = stragglers > 0;
  code.group.resize(at(b.rows));
  std::iota(code.group.begin(), code.group.end(), 0);
  for (int i = 0; i < b.rows; ++i) {
    auto& parts = code.parts.emplace_back();
    for (int k = 0; k <= stragglers; ++k) parts.push_back({(i + k) % b.rows, b(i, (i + k) % b.rows)});
  }
  code.decode = [decoder](std::span<const Rank> arrived) { return decode(*decoder, arrived); };
  return code;
}

}  // namespace

std::optional<GradientCode> cyclic_repetition(int workers, int stragglers, std::uint64_t seed) {
  constexpr int most_draws = 50;
  if (stragglers == 0) return fractional_repetition(workers, 0);
  for (int draw = 0; draw < most_draws; ++draw) {
    const auto stream = [&](int worker) {
      return RandomStream{
          .seed = seed, .purpose = Purpose::algorithm, .stream = 2, .worker = Rank{worker}, .step = Step{draw}};
    };
    const auto decoder =
        std::make_shared<const CyclicDecoder>(encoding(draw_null_space(workers, stragglers, stream(0))), stragglers);
    if (is_well_conditioned(*decoder, stream(1))) return code_of(decoder);
  }
  return std::nullopt;
}

}  // namespace syncopate
