// A moving average of the models that a method publishes, which is then what is evaluated: a <- d a + (1 - d) theta.
// Source:  Chen et al. 2016, Algorithms 2 and 4 (d = alpha; theta as it was before the update, one step late);
//          TensorFlow, ExponentialMovingAverage (theta after the update; with num_updates the decay of update n, from
//          0, is min(d, (1 + n) / (10 + n)), so that 0.9999 holds from n = 89,990 on).
// Shapes:  parameters, average: (P,) flat float32; BatchNorm statistics are averaged likewise.
// Cost:    one vector of P floats, one combination per publication; no time on either clock.
// Differs: it takes in what is published: where workers step on their own that is their average, not each step. Chen et
//          al.'s average is late by one update; where a publication ends a round of many, one publication would be a
//          whole round, and the last model, which may be the only merge, would never count: there it is always the
//          model after the update. It begins at the initial model. An ensemble has none.
// Checks:  golden sequence with num_updates; a decay of 0 is the model itself, one publication late "before-update".
#pragma once

#include <cstdint>
#include <optional>

#include "workers/settings/settings.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

struct MovingAverageOptions {
  enum class Of { before_update, after_update };
  double decay = 0.9999;
  Of of = Of::before_update;
  bool num_updates = false;  // a small decay at first

  double decay_of(std::int64_t update) const;  // from 0
};

class MovingAverage {
 public:
  MovingAverage(const MovingAverageOptions& options, ModelStatePtr initial);

  // Takes in a model, or instead the one before; returns the average. Null in time-only runs.
  ModelStatePtr take_in(const ModelStatePtr& published, Training& training);

 private:
  MovingAverageOptions options_;
  ModelStatePtr average_;
  ModelStatePtr last_;  // before_update: what was published last
  std::int64_t updates_ = 0;
};

// Reads the table `average`; none if there is none. Whether each publication ends a round of many updates: then "of" is
// "after-update", and the other a fault.
std::optional<MovingAverageOptions> read_moving_average(Settings& settings, bool publishes_rounds);

}  // namespace syncopate
