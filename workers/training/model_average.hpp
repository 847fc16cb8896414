// A moving average of the published models theta, which is evaluated instead of them: a <- d a + (1 - d) theta.
// Source:  Chen et al. 2016, Algorithms 2 and 4 (d = alpha; theta is the model before the update, so the average is one
//          step late); TensorFlow, ExponentialMovingAverage (theta is the model after the update; with num_updates the
//          decay of update n, counted from 0, is min(d, (1 + n) / (10 + n)), which is 0.9999 from n = 89,990 on).
// Shapes:  parameters, average: (P,) flat float32; BatchNorm statistics are averaged the same way.
// Cost:    one vector of P floats, one combination per publication; no time on the virtual or the real clock.
// Differs: it averages published models, not the model after each local step. Chen et al.'s average is late by one
//          update. If models are published once per round of many updates, it would be late by a whole round, and the
//          last model would never count; such methods must use the model after the update. The average starts at the
//          initial model. Ensembles are not averaged.
// Checks:  golden sequence with num_updates; a decay of 0 gives the published model or, with "before-update", the
//          previous one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "workers/config/settings.hpp"
#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

struct MovingAverageOptions {
  enum class Of { before_update, after_update };
  double decay = 0.9999;
  Of of = Of::before_update;
  bool num_updates = false;  // use a smaller decay in early updates, as in TensorFlow

  double decay_of(std::int64_t update) const {  // counted from 0
    const auto n = static_cast<double>(update);
    return num_updates ? std::min(decay, (1 + n) / (10 + n)) : decay;
  }
};

class MovingAverage {
 public:
  MovingAverage(const MovingAverageOptions& options, ModelStatePtr initial)
      : options_(options), average_(std::move(initial)), last_(average_) {}

  // Adds the published model or, with before_update, the one before it. Returns the average; null in time-only runs.
  ModelStatePtr update(const ModelStatePtr& published, Training& training);

 private:
  MovingAverageOptions options_;
  ModelStatePtr average_;
  ModelStatePtr last_;  // the model published last; used by before_update
  std::int64_t updates_ = 0;
};

// Reads the table `average`; nullopt if it is absent. `publishes_rounds`: whether the method publishes a model once per
// round of many updates. The key `of` must then be "after-update".
std::optional<MovingAverageOptions> read_moving_average(Settings& settings, bool publishes_rounds);

// The norm-preserving mean of differences between models: a vector in the mean direction of the differences, with their
// mean length. With phi(x) = x / |x|, phi(0) = 0, and weights w that are divided by their sum, it is
//
//   (sum w |x|) phi(sum w phi(x))
//
// Source:  Decoupled DiLoCo (Douillard et al. 2026) calls this mean RDA. Descriptions of the paper were used, because
//          the paper itself was not available.
// Shapes:  differences: (P,) flat float32; arithmetic in double precision.
// Cost:    each difference is read twice, or three times if the directions cancel.
// Differs: if the mean of the directions is not longer than 1e-6, because they cancel, the result is the weighted mean;
//          this bound is ours. If a slice cuts a tensor, the part within the slice counts as a tensor.
// Checks:  the mean of one vector, or of equal ones, is that vector; the mean of m orthogonal ones of length R has
//          length R, where the plain mean has R / sqrt(m); a golden table of another implementation.
inline constexpr double shortest_mean_direction = 1e-6;

// Writes the norm-preserving mean of one tensor.
void write_norm_preserving_mean(float* out, std::span<const WeightedVector> terms, std::size_t size);

// How to average embedding tables, which are the tensors with "embedding", "words" or "places" in their names.
enum class OfEmbeddings {
  mean,   // by the weighted mean, like normalisation buffers
  alike,  // by the norm-preserving mean, like all other tensors
};

// Returns the mean of each tensor within the slice, and 0 outside. Moments are those of the first state. Null in
// time-only runs.
ModelStatePtr norm_preserving_mean(Training& training, std::span<const WeightedState> differences, Slice slice = {},
                                   OfEmbeddings embeddings = OfEmbeddings::mean);

}  // namespace syncopate
