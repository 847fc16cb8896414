#include "experiments/sections/data_position.hpp"

#include <algorithm>

namespace syncopate {

Step in_steps_of(const DataSteps& other, Step done, const DataSteps& own) {
  if (own.steps_per_epoch == 0 || other.steps_per_epoch == 0) return done;
  const std::int64_t epochs = done.value() / own.steps_per_epoch, steps = done.value() % own.steps_per_epoch;
  const std::int64_t size = other.samples_per_micro_batch;
  const std::int64_t taken = (steps * own.samples_per_micro_batch + size - 1) / size;
  return epochs * other.steps_per_epoch + std::min(taken, other.steps_per_epoch);
}

}  // namespace syncopate
