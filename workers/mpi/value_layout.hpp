// How the values of a gradient or a model lie in one flat vector: the parameters; what those lack of the
// exact values, if the vector is wide; the normalisation buffers.
#pragma once

#include <cstddef>

#include "workers/training/flat_vector.hpp"
#include "workers/training/model_state.hpp"

namespace syncopate {

struct ValueLayout {
  std::size_t parameters = 0;
  std::size_t buffers = 0;
  bool wide = false;

  std::size_t parts() const { return wide ? 2 : 1; }
  std::size_t size() const { return parts() * parameters + buffers; }
};

// What of `whole` a slice stands for: its parameters, and the buffers with the first slice.
FlatVector cut(const FlatVector& whole, const ValueLayout& layout, const Slice& slice);
// A whole vector again; what the slice does not stand for is zero.
FlatVector spread(const FlatVector& part, const ValueLayout& layout, const Slice& slice);

// A vector of the layout, which is not wide, as a wide one.
FlatVector widened(const FlatVector& narrow, const ValueLayout& layout);

FlatVector copy_of(const FlatVector& values);

// total += values, both of the layout; wide ones in double precision.
void add_values(FlatVector& total, const FlatVector& values, const ValueLayout& layout);

// What a double-precision value is as two floats, and back.
inline void split(double value, float& high, float& low) {
  high = static_cast<float>(value);
  low = static_cast<float>(value - high);
}
inline double joined(float high, float low) { return static_cast<double>(high) + low; }

}  // namespace syncopate
