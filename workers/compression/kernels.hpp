// Products of a matrix with few vectors. M is (n, m), row after row; P is (n, r), row after row; Q is (m, r), column
// after column, so that both products go along M's rows.
#pragma once

#include <cstddef>

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

}  // namespace syncopate
