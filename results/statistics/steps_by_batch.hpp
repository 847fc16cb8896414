// How many steps a target takes at another batch, from one run along which the noise scale of gradients was measured.
// Source:  McCandlish et al. 2018, "An Empirical Model of Large-Batch Training": a step at a batch of B samples makes 1
//          / (1 + N / B) of the progress of one along the whole gradient, where N is the noise scale there; so S(B) =
//          S_min (1 + N / B) where N stays the same.
// Method:  each of the run's steps at its batch b made 1 / (1 + N / b) of a whole step's progress, with the N measured
//          last before it. At a batch of B, whole steps take 1 + N / B steps each; both sums over the run make a line
//          in 1 / B.
// Differs: it takes the learning rate to be as good at every batch, and gradients to be of the current model.
// Units:   batches and noise scales in samples.
// Checks:  the closed form where N stays the same; the run's own batch has the run's own steps.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "workers/units/units.hpp"

namespace syncopate {

struct MeasuredNoise {
  Step step{};       // after so many
  double scale = 0;  // in samples
};

struct StepsByBatch {
  double least = 0;             // steps along whole gradients
  double times_batch = 0;       // b: steps(B) = least + b / B
  double mean_noise_scale = 0;  // of the run's steps

  double steps(double batch) const { return least + times_batch / batch; }
};

// Of a run that reached its target after so many steps at a batch of so many samples. None without a measurement before
// the target. Measurements in ascending order.
std::optional<StepsByBatch> steps_by_batch(std::span<const MeasuredNoise> measured, Step steps, double batch);

}  // namespace syncopate
