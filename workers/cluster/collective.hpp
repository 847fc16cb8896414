// What workers bring to a collective, and what comes back to each of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "workers/training/gradient.hpp"
#include "workers/training/training.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// What a worker brings to a collective, for the row of steps.csv that it becomes.
struct Contribution {
  std::int64_t kept = 0;     // micro-batches in what is reduced
  std::int64_t planned = 0;  // micro-batches without any dropping
  Step step{};               // optimizer steps done when the round ends
  Step period{};             // optimizer steps since the last synchronisation
  Duration compute_time{};   // spent on what is kept, for finish_round
};

// When a partial all-reduce takes place: once `quorum` workers have arrived at it, or once `rank` has. All
// workers give the same for the same round. Workers that have ended are not waited for.
struct Activation {
  int quorum = 1;
  std::optional<Rank> rank{};  // instead of the quorum
};

// What becomes of a gradient that comes after its round has taken place.
enum class LateGradient {
  drop,        // it is lost
  accumulate,  // it is added to what this worker contributes to the next round, also while it computes again
};

// What a worker passes to average: how, and as which part.
struct Averaging {
  AveragePolicy policy{};
  double weight = 1;   // of this worker's model; the weights are divided by their sum (all 0: equal)
  int group_size = 0;  // average within groups of so many workers of consecutive ranks; 0: over all
};

// Totals after a collective, the same on every participant, so that all decide alike.
struct Agreement {
  Time time{};                     // completion (simulated) or last arrival (MPI)
  std::int64_t micro_batches = 0;  // kept so far, over all workers
  Bytes bytes{};                   // sent so far, over all workers
};

// One round of partial all-reduces, as every worker gets it.
struct PartialSum {
  Gradient sum{};
  int contributors = 0;  // workers whose gradients are in it
  Agreement agreement{};
};

// One copy for all who gathered it.
using SharedNumbers = std::shared_ptr<const std::vector<double>>;

}  // namespace syncopate
