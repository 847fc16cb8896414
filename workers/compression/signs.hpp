// Signs as bits, 32 to a word, the first value's the lowest. The bit says that the value's sign is minus, so that a
// zero is +1 (and a negative zero -1).
#pragma once

#include <cstddef>
#include <cstdint>

namespace syncopate {

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

}  // namespace syncopate
