// Products of a matrix with few vectors. M is (n, m), row after row; P is (n, r), row after row; Q is (m, r), column
// after column, so that both products go along M's rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace syncopate {

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

// Makes the columns of P orthogonal and of length 1 (Gram-Schmidt, twice, in double precision). A column that is a sum
// of those before, up to rounding, becomes zeros.
void orthogonalise(std::size_t n, std::size_t r, float* left);

// Signs as bits, 32 to a word, the first value's the lowest. The bit says that the value's sign is minus, so that a
// zero is +1 (and a negative zero -1).
void pack_signs(const float* values, std::size_t size, std::uint32_t* words);
// The same where a bit says that the value is below 0, which neither zero nor a NaN is.
void pack_below_zero(const float* values, std::size_t size, std::uint32_t* words);
// Whole words, each bit as a word of ones or zeros.
void spread_bits(const std::uint32_t* words, std::size_t count, std::uint32_t* masks);
// sum += +scale or -scale.
void add_signs(const std::uint32_t* words, float scale, std::size_t size, float* sum);
// values -= +scale or -scale, by their own signs.
void take_out_signs(float* values, float scale, std::size_t size);
// In double precision, in an order that depends on the size alone.
double sum_of_magnitudes(const float* values, std::size_t size);
// Each value's sign times factor, and 0 for 0.
void write_signs(float* values, float factor, std::size_t size);

// The largest values of a vector by magnitude.
// Places of the k largest magnitudes, ascending; exact, equal ones by their lowest places. A NaN is larger than any
// number, so that it is sent, and not hidden.
std::vector<std::uint32_t> largest_magnitudes(std::span<const float> values, std::size_t k);

}  // namespace syncopate
