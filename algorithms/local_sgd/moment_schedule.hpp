// After which steps what is averaged, where parameters and each moment of the optimizer have periods of their own.
// Source:  Iacob et al. 2026, "DES-LOC: Desynced Low Communication Adaptive Optimizers for Training Foundation Models".
// Units:   steps.
// Cost:    one all-reduce after each step that anything falls on, of what falls on it; per step 1 / K_x + 1 / K_u +
//          1 / K_v vectors of P floats, in multiples of a gradient's all-reduce at every step.
#pragma once

#include <array>
#include <limits>

#include "algorithms/local_sgd/sync_period.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

class MomentSchedule final : public SyncPeriod {
 public:
  static constexpr Step never{std::numeric_limits<Step::Rep>::max()};

  // K_x; K_u and K_v, `never` for a moment that the optimizer does not have; what becomes of BatchNorm statistics when
  // the parameters are averaged. Throws std::invalid_argument for a period below 1.
  MomentSchedule(Step parameters, const std::array<Step, 2>& moments, StatePolicy buffers = StatePolicy::average);

  // Until the next step after which anything is averaged.
  Step at(Step done, double learning_rate, Step left) const override;
  // What is averaged after so many steps. After the run's last, `end`, the parameters are.
  AveragePolicy due(Step done, Step end) const;
  // After so many steps all of it comes again; the longest period where that would be more than 10^9.
  Step cycle() const;

 private:
  Step parameters_;
  std::array<Step, 2> moments_;
  StatePolicy buffers_;
};

// Steps after which half of what a moment was is left in it: ln 0.5 / ln beta. 0 for beta = 0.
double half_life(double beta);

}  // namespace syncopate
