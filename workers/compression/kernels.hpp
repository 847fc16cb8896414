// Loops of compressors: low-rank products, numbers of a few bits, the largest magnitudes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace syncopate {

// Products of a matrix with few vectors. M is (n, m), stored by rows; P is (n, r), stored by rows; Q is (m, r), stored
// by columns, so that both products read M by rows.
struct LowRank {
  std::size_t n = 0;
  std::size_t m = 0;
  std::size_t r = 0;
};

// P = M Q
void write_left(const LowRank& shape, const float* matrix, const float* right, float* left);
// Q = M^T P
void write_right(const LowRank& shape, const float* matrix, const float* left, float* right);
// M += factor x P Q^T
void add_product(const LowRank& shape, float factor, const float* left, const float* right, float* matrix);

// Makes the columns of P orthogonal and of length 1 (Gram-Schmidt, twice, in double precision). A column that, up to
// rounding, depends linearly on previous ones becomes zeros.
void orthogonalise(std::size_t n, std::size_t r, float* left);

constexpr std::size_t words_of_bits(std::size_t bits) { return (bits + 31) / 32; }

// Packs numbers of `bits` bits, one after the other, the first in the lowest bits of the first word.
template <typename Number>
std::vector<std::uint32_t> pack_numbers(std::span<const Number> numbers, std::size_t bits) {
  std::vector<std::uint32_t> words;
  words.reserve(words_of_bits(bits * numbers.size()));
  std::uint64_t pending = 0;
  std::size_t count = 0;  // of pending bits
  for (const Number number : numbers) {
    pending |= std::uint64_t{number} << count;
    count += bits;
    if (count < 32) continue;
    words.push_back(static_cast<std::uint32_t>(pending));
    pending >>= 32;
    count -= 32;
  }
  if (count > 0) words.push_back(static_cast<std::uint32_t>(pending));
  return words;
}

// Unpacks them from the words of a packet.
template <typename Number>
void unpack_numbers(const float* packet, std::size_t bits, std::span<Number> numbers) {
  std::uint64_t pending = 0;
  std::size_t count = 0;
  for (Number& number : numbers) {
    if (count < bits) {
      pending |= std::uint64_t{std::bit_cast<std::uint32_t>(*packet++)} << count;
      count += 32;
    }
    number = static_cast<Number>(pending & ((std::uint64_t{1} << bits) - 1));
    pending >>= bits;
    count -= bits;
  }
}

// Values are packed and unpacked in pieces of this size, which stay in the nearest cache.
constexpr std::size_t words_at_once = 64, piece = 32 * words_at_once;

// Packs one bit per value, 32 per word, the first value in the lowest bit. `is_minus` packs sign bits: zero decodes as
// +1, negative zero as -1. `is_below_zero` packs 0 for negative zero and NaN.
enum class Bit { is_minus, is_below_zero };
template <Bit bit>
void pack_bits(const float* values, std::size_t size, std::uint32_t* words);
// Expands whole words: each bit becomes a word of ones or zeros.
void spread_bits(const std::uint32_t* words, std::size_t count, std::uint32_t* masks);
// sum += scale where the bit is 0, and sum -= scale where it is 1.
void add_signs(const std::uint32_t* words, float scale, std::size_t size, float* sum);
// Takes scale off the magnitudes: values -= scale, but values += scale for negative values.
void take_out_signs(float* values, float scale, std::size_t size);
// The sum in double precision; the order of additions depends only on the size.
double sum_of_magnitudes(const float* values, std::size_t size);
// Replaces each value by its sign times factor; 0 stays 0.
void write_signs(float* values, float factor, std::size_t size);

// Bins of equal width over `range` standard deviations around the mean. Values beyond them are in the outermost bins.
// Writes each value's bin, and returns the means of the bins' values (0 for an empty bin; NaN if a value is not
// finite).
// Source: the code of MuLoCo and SparseLoCo: bin = round((value - mean) / width + bins / 2), halves to even, with the
// unbiased standard deviation. So with four bins the edges are at -2.25, -0.75 and 0.75 standard deviations for
// differences start - end. For differences end - start these edges must be mirrored.
std::vector<float> means_of_bins(std::span<const float> values, std::size_t bins, double range, bool mirrored,
                                 std::uint8_t* levels);

// Returns the indices of the k largest magnitudes in ascending order. Exact; ties go to the lowest index. NaN counts as
// larger than any number, so that it is sent and not hidden.
std::vector<std::uint32_t> largest_magnitudes(std::span<const float> values, std::size_t k);

}  // namespace syncopate
