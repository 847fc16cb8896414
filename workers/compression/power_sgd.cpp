#include "workers/compression/power_sgd.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "workers/compression/packet_sizes.hpp"
#include "workers/process/run_failure.hpp"
#include "workers/random/standard_normal.hpp"
#include "workers/training/flat_arithmetic.hpp"

namespace syncopate {

PowerSgd::PowerSgd(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed)
    : Compressor(options, seed) {
  std::size_t left_words = 0;
  const auto r = static_cast<std::size_t>(options.rank);
  for (const Part& part : parts) {
    const std::size_t n = part.rows, m = n > 0 ? part.size / n : 0;
    const bool is_smaller =
        r <= std::min(n, m) && static_cast<double>(r * (n + m)) * options.least_rate < static_cast<double>(n * m);
    if (is_smaller) {
      factored_.push_back({{n, m, r}, part.offset, left_words, right_words_});
      left_words += r * n;
      right_words_ += r * m;
    } else {
      whole_.push_back({part, left_words});
      left_words += part.size;
    }
  }
  if (factored_.empty())
    throw RunFailure(fmt::format("{}{}the model has no matrix that factors of rank {} make smaller by more than {}",
                                 options.written, options.written.empty() ? "" : "; ", options.rank,
                                 options.least_rate));
  exchanges_ = {{Operation::all_reduce, bytes_of_words(left_words)},
                {Operation::all_reduce, bytes_of_words(right_words_)}};
}

// The last step's factor, or a draw, the same for all workers. A column of zeros, which gradients of zeros or of a
// smaller rank leave, would stay so for ever: it is drawn anew.
void PowerSgd::begin_right(Step step, const float* last, std::span<float> right) const {
  if (last) std::copy_n(last, right.size(), right.data());
  for (const Factored& matrix : factored_)
    for (std::size_t column = 0; column < matrix.shape.r; ++column) {
      const std::size_t first = matrix.right + column * matrix.shape.m;
      const auto values = right.subspan(first, matrix.shape.m);
      if (last && std::ranges::any_of(values, [](float value) { return value != 0; })) continue;
      draw(step, first, values);
    }
}

void PowerSgd::draw(Step step, std::size_t first, std::span<float> column) const {
  const RandomStream stream{.seed = seed_, .purpose = Purpose::compression, .stream = 2, .worker = {}, .step = step};
  std::vector<double> drawn(column.size());
  fill_standard_normal(stream, static_cast<std::uint32_t>(first), drawn);
  std::ranges::transform(drawn, column.begin(), [](double value) { return static_cast<float>(value); });
}

void PowerSgd::encode(Rank, Step step, const float* common, std::span<float> p, float* packet) const {
  std::vector<float> right(right_words_);
  begin_right(step, common, right);
  for (const Factored& matrix : factored_)
    write_left(matrix.shape, p.data() + matrix.offset, right.data() + matrix.right, packet + matrix.left);
  for (const auto& [part, at] : whole_) {
    std::copy_n(p.data() + part.offset, part.size, packet + at);
    std::fill_n(p.data() + part.offset, part.size, 0.0f);
  }
}

void PowerSgd::prepare(float* sum) const {
  for (const Factored& matrix : factored_) orthogonalise(matrix.shape.n, matrix.shape.r, sum + matrix.left);
}

void PowerSgd::encode_second(Step, const float* between, std::span<float> p, float* packet) const {
  for (const Factored& matrix : factored_) {
    float* const own = p.data() + matrix.offset;
    write_right(matrix.shape, own, between + matrix.left, packet + matrix.right);
    if (!corrects_residual()) add_product(matrix.shape, -1, between + matrix.left, packet + matrix.right, own);
  }
}

void PowerSgd::decode(const Received& received, std::span<float> sum) const {
  for (const Factored& matrix : factored_)
    add_product(matrix.shape, 1, received.between + matrix.left, received.packets.front() + matrix.right,
                sum.data() + matrix.offset);
  for (const auto& [part, at] : whole_) std::copy_n(received.between + at, part.size, sum.data() + part.offset);
}

void PowerSgd::correct(const Received& received, std::span<float> p) const {
  const float share = -1 / static_cast<float>(received.workers);
  for (const Factored& matrix : factored_)
    add_product(matrix.shape, share, received.between + matrix.left, received.packets.front() + matrix.right,
                p.data() + matrix.offset);
}

}  // namespace syncopate
