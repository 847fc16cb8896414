// The state of a training: parameters, optimizer moments, normalisation buffers. A state is an
// immutable, shared value that may still be on its way (its cells are filled by executor tasks).
// Equal inputs give the same state object, so N workers in consensus share one replica; a cell that
// nobody else holds is overwritten in place by the next step.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "workers/training/executor.hpp"
#include "workers/training/flat_vector.hpp"
#include "workers/units.hpp"

namespace syncopate {

// A flat vector that its producer task fills. Only tasks that come after the producer read it.
struct Cell {
  FlatVector value;
  std::shared_ptr<Task> producer;  // null: filled from the start
};
using CellPtr = std::shared_ptr<Cell>;

struct ModelState {
  std::uint64_t id = 0;            // no two states ever share one, unlike their addresses
  CellPtr parameters;              // (P,)
  std::array<CellPtr, 2> moments;  // (P,) each; null: all zeros (before the first step, or reset)
  CellPtr buffers;                 // null where the model has none
  Step optimizer_steps{};          // steps since the moments were zero
};
using ModelStatePtr = std::shared_ptr<const ModelState>;

std::uint64_t new_state_id();

}  // namespace syncopate
