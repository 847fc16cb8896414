#include "workers/training/flat_arithmetic.hpp"

#include <algorithm>

#include "workers/training/vector_clones.hpp"

namespace syncopate {

SYNCOPATE_VECTOR_CLONES
void write_scaled(float* __restrict out, float factor, const float* __restrict in, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) out[i] = factor * in[i];
}

SYNCOPATE_VECTOR_CLONES
void write_scaled(double* __restrict out, double factor, const float* __restrict in, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) out[i] = factor * in[i];
}

SYNCOPATE_VECTOR_CLONES
void add_scaled(float* __restrict out, float factor, const float* __restrict in, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) out[i] += factor * in[i];
}

SYNCOPATE_VECTOR_CLONES
void add_scaled(double* __restrict out, double factor, const float* __restrict in, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) out[i] += factor * in[i];
}

SYNCOPATE_VECTOR_CLONES
void add(float* __restrict out, const float* __restrict in, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) out[i] += in[i];
}

SYNCOPATE_VECTOR_CLONES
void scale(float* values, float factor, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) values[i] *= factor;
}

namespace {

// For two or three terms, as in gossip's averages with neighbours, the sum stays in registers. It starts from +0.0, as
// sums of more terms do, so that a sum of zero always has the same sign.
SYNCOPATE_VECTOR_CLONES
void write_sum_of_two(float* __restrict out, double u, const float* __restrict x, double v, const float* __restrict y,
                      std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<float>(0.0 + u * x[i] + v * y[i]);
}

SYNCOPATE_VECTOR_CLONES
void write_sum_of_three(float* __restrict out, double u, const float* __restrict x, double v, const float* __restrict y,
                        double w, const float* __restrict z, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<float>(0.0 + u * x[i] + v * y[i] + w * z[i]);
}

SYNCOPATE_VECTOR_CLONES
void round_to_single(float* __restrict out, const double* __restrict in, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<float>(in[i]);
}

}  // namespace

void write_weighted_sum(float* out, std::span<const WeightedVector> terms, std::size_t size) {
  if (terms.size() == 2) return write_sum_of_two(out, terms[0].weight, terms[0].in, terms[1].weight, terms[1].in, size);
  if (terms.size() == 3)
    return write_sum_of_three(out, terms[0].weight, terms[0].in, terms[1].weight, terms[1].in, terms[2].weight,
                              terms[2].in, size);
  constexpr std::size_t block_size = 1024;  // so that the sum stays in the first-level cache
  double sum[block_size];
  for (std::size_t at = 0; at < size; at += block_size) {
    const std::size_t n = std::min(block_size, size - at);
    std::fill_n(sum, n, 0.0);
    for (const auto& [weight, in] : terms) add_scaled(sum, weight, in + at, n);
    round_to_single(out + at, sum, n);
  }
}

// Uses sixteen partial sums on every processor, one per float of the widest vector, so that all give the same bits.
SYNCOPATE_VECTOR_CLONES
double sum_of_squares(const float* in, std::size_t size) {
  constexpr std::size_t lanes = 16;
  double sums[lanes] = {};
  std::size_t at = 0;
  for (; at + lanes <= size; at += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const double value = in[at + lane];
      sums[lane] += value * value;
    }
  for (; at < size; ++at) sums[at % lanes] += static_cast<double>(in[at]) * in[at];
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace syncopate
