// The state of a training: parameters, optimizer moments, normalisation buffers. A state is an
// immutable, shared value that may still be on its way (its cells are filled by executor tasks).
// Equal inputs give the same state object, so N workers in consensus share one replica; a cell that
// nobody else holds is overwritten in place by the next step.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <span>

#include "workers/training/executor.hpp"
#include "workers/training/flat_vector.hpp"
#include "workers/training/process_set.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// A flat vector that its producer task fills. Only tasks that come after the producer read it.
struct Cell {
  FlatVector value;
  std::shared_ptr<Task> producer;  // null: filled from the start, or not here
  ProcessSet at;                   // where it is, of the processes that divide the work
  // A step from it has been submitted, which may take over its memory: no memo hands it out any more.
  // Only the submitting thread asks.
  bool stepped_from = false;
};
using CellPtr = std::shared_ptr<Cell>;

CellPtr filled_cell(std::span<const float> values);
inline std::shared_ptr<Task> producer(const CellPtr& cell) { return cell ? cell->producer : nullptr; }

// What the bias correction of a moment needs: how much of it is still the zero that it began with. After one more step
// with a decay of beta that is left beta^(steps + 1).
struct MomentAge {
  Step steps{};     // that have gone into it, since
  double left = 1;  // so much was: 1 for a moment that was zero, less for a mean of moments that had unequal ages
  bool operator==(const MomentAge&) const = default;
};
using MomentAges = std::array<MomentAge, 2>;

struct Moment {
  CellPtr values;  // (P,); null: all zeros (before the first step, or reset)
  MomentAge age{};
  bool operator==(const Moment&) const = default;
};

struct ModelState {
  std::uint64_t id = 0;  // no two states ever share one, unlike their addresses
  CellPtr parameters;    // (P,)
  std::array<Moment, 2> moments;
  CellPtr buffers;  // null where the model has none
};
using ModelStatePtr = std::shared_ptr<const ModelState>;

// Part `index` of `count` equal parts of a vector: what one of several servers holds.
struct Slice {
  int index = 0;
  int count = 1;
  std::int64_t begin(std::int64_t size) const { return size * index / count; }
  std::int64_t end(std::int64_t size) const { return size * (index + 1) / count; }
  // On the network, of parameters that take so many bytes as a whole; each is in one slice as a whole.
  Bytes bytes_of(Bytes parameters) const {
    constexpr std::int64_t each = 4;
    return Bytes{each * (end(parameters.value() / each) - begin(parameters.value() / each))};
  }
  auto operator<=>(const Slice&) const = default;
};

// One term of a linear combination of states.
struct WeightedState {
  double weight = 1;
  ModelStatePtr state{};
};

std::uint64_t new_state_id();

MomentAges ages_of(const ModelState& state);
// Of the mean of moments with these ages and decays (Optimizer::decays). Equal ages stay as they are. Weights, one per
// member, are divided by their sum; empty: equal.
MomentAges age_of_mean(std::span<const MomentAges> ages, std::span<const double> weights,
                       std::span<const double> decays);

}  // namespace syncopate
