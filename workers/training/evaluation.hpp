// Where a training starts instead of at first values of the model's own: what an earlier one has left.
#pragma once

#include <cstddef>
#include <vector>

namespace syncopate {

// Elements [from, from + size) of another model's parameters, which become [to, to + size) of this one's.
struct TakenElements {
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t size = 0;
};

struct StartingPoint {
  std::vector<float> parameters;       // (P,)
  std::vector<float> buffers{};        // normalisation statistics; empty: the model's own first ones
  std::vector<TakenElements> taken{};  // these alone are taken, and the rest starts anew; empty: all
};

}  // namespace syncopate
