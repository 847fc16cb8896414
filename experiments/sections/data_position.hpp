// How far in the data a training is, in steps of another batch.
#pragma once

#include <cstdint>

#include "workers/units/units.hpp"

namespace syncopate {

// Steps as a training counts them. All trainings have the same number of workers and of micro-batches in a step.
struct DataSteps {
  std::int64_t samples_per_micro_batch = 1;
  std::int64_t steps_per_epoch = 0;  // 0: no data set, or faults
};

// `done` steps of one training, in those of another: as many whole epochs, and of the last one the first step that
// meets no sample again, or the next epoch where there is none. The same number where there are no epochs.
Step in_steps_of(const DataSteps& other, Step done, const DataSteps& own);

}  // namespace syncopate
