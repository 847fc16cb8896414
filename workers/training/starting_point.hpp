// Where a training starts instead of at first values of the model's own: what an earlier one has left.
#pragma once

#include <vector>

namespace syncopate {

struct StartingPoint {
  std::vector<float> parameters;  // (P,)
  std::vector<float> buffers{};   // normalisation statistics; empty: the model's own first ones
};

}  // namespace syncopate
