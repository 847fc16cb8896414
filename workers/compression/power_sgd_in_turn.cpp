#include "workers/compression/power_sgd_in_turn.hpp"

#include <algorithm>

#include "workers/compression/packet_sizes.hpp"

namespace syncopate {

template <typename Use>
void PowerSgdInTurn::for_whole(Step step, const Use& use) const {
  std::size_t behind_right = right_words_;
  for (const auto& [part, at] : whole_) {
    use(part, sends_left(step) ? at : behind_right);
    behind_right += part.size;
  }
}

std::vector<Exchange> PowerSgdInTurn::exchanges(Step step) const {
  if (sends_left(step)) return {exchanges_.front()};
  std::size_t words = right_words_;
  for_whole(step, [&](const Part& part, std::size_t) { words += part.size; });
  return {{Operation::all_reduce, bytes_of_words(words)}};
}

std::vector<float> PowerSgdInTurn::other_factor(Step step, const float* common) const {
  const bool is_right = sends_left(step);
  const auto size = static_cast<std::size_t>(exchanges_[is_right ? 1 : 0].packet.value()) / sizeof(float);
  std::vector<float> factor(size);
  if (common) std::copy_n(common, size, factor.data());
  std::vector<float> column, by_rows;
  for (const Factored& matrix : factored_) {
    const auto& [n, m, r] = matrix.shape;
    const std::size_t rows = is_right ? m : n, begin = is_right ? matrix.right : matrix.left;
    // P stands row after row, Q column after column.
    const auto at = [&, r = r](std::size_t i, std::size_t c) { return begin + (is_right ? c * rows + i : i * r + c); };
    by_rows.resize(rows * r);
    for (std::size_t c = 0; c < r; ++c) {
      column.resize(rows);
      for (std::size_t i = 0; i < rows; ++i) column[i] = factor[at(i, c)];
      if (std::ranges::all_of(column, [](float value) { return value == 0; })) draw(step, begin + c * rows, column);
      for (std::size_t i = 0; i < rows; ++i) by_rows[i * r + c] = column[i];
    }
    orthogonalise(rows, r, by_rows.data());
    for (std::size_t c = 0; c < r; ++c)
      for (std::size_t i = 0; i < rows; ++i) factor[at(i, c)] = by_rows[i * r + c];
  }
  return factor;
}

void PowerSgdInTurn::encode(Rank, Step step, const float* common, std::span<float> p, float* packet) const {
  const std::vector<float> other = other_factor(step, common);
  for (const Factored& matrix : factored_) {
    float* const own = p.data() + matrix.offset;
    float* const sent = packet + place_of(matrix, step);
    if (sends_left(step)) {
      write_left(matrix.shape, own, other.data() + matrix.right, sent);
      if (!corrects_residual()) add_product(matrix.shape, -1, sent, other.data() + matrix.right, own);
    } else {
      write_right(matrix.shape, own, other.data() + matrix.left, sent);
      if (!corrects_residual()) add_product(matrix.shape, -1, other.data() + matrix.left, sent, own);
    }
  }
  for_whole(step, [&](const Part& part, std::size_t at) {
    std::copy_n(p.data() + part.offset, part.size, packet + at);
    std::fill_n(p.data() + part.offset, part.size, 0.0f);
  });
}

void PowerSgdInTurn::add_products(const Received& received, float factor, std::span<float> to) const {
  const std::vector<float> other = other_factor(received.step, received.common);
  for (const Factored& matrix : factored_) {
    const float* const sent = received.packets.front() + place_of(matrix, received.step);
    float* const out = to.data() + matrix.offset;
    if (sends_left(received.step))
      add_product(matrix.shape, factor, sent, other.data() + matrix.right, out);
    else
      add_product(matrix.shape, factor, other.data() + matrix.left, sent, out);
  }
}

void PowerSgdInTurn::decode(const Received& received, std::span<float> sum) const {
  add_products(received, 1, sum);
  for_whole(received.step, [&](const Part& part, std::size_t at) {
    std::copy_n(received.packets.front() + at, part.size, sum.data() + part.offset);
  });
}

void PowerSgdInTurn::correct(const Received& received, std::span<float> p) const {
  add_products(received, -1 / static_cast<float>(received.workers), p);
}

}  // namespace syncopate
