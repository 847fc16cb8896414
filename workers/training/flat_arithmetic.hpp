// Sums of flat vectors, element by element, compiled for each instruction set (vector_clones.hpp). `in` and `out` are
// disjoint.
#pragma once

#include <cstddef>
#include <span>

namespace syncopate {

// out = factor x in, and out += factor x in. Products are rounded before they are added.
void write_scaled(float* out, float factor, const float* in, std::size_t size);
void write_scaled(double* out, double factor, const float* in, std::size_t size);
void add_scaled(float* out, float factor, const float* in, std::size_t size);
void add_scaled(double* out, double factor, const float* in, std::size_t size);

void add(float* out, const float* in, std::size_t size);
void scale(float* values, float factor, std::size_t size);

// out = the sum of weight x in over the terms, in their order and in double precision, rounded once at the end.
struct WeightedVector {
  double weight;
  const float* in;
};
void write_weighted_sum(float* out, std::span<const WeightedVector> terms, std::size_t size);

// In double precision, in an order that depends on the size alone.
double sum_of_squares(const float* in, std::size_t size);

}  // namespace syncopate
