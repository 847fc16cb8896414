// How long the sequences of a micro-batch are: what its time may go by.
#pragma once

#include <cstdint>
#include <vector>

#include "workers/training/objective.hpp"

namespace syncopate {

class BatchLengths {
 public:
  virtual ~BatchLengths() = default;

  // Appends the lengths of its samples, in their order, each at least 1.
  virtual void append(const MicroBatch& micro_batch, std::vector<std::int32_t>& lengths) const = 0;

  // What micro-batches there are: K workers, M of each per step, S steps until the data have been gone through.
  virtual int workers() const = 0;
  virtual int micro_batches() const = 0;
  virtual std::int64_t steps_per_epoch() const = 0;
  // Whether workers have data of their own, and so lengths of another law.
  virtual bool differs_by_worker() const = 0;

  // No micro-batch has fewer samples, and none of them is shorter.
  virtual std::int64_t fewest_samples() const = 0;
  virtual std::int32_t shortest() const = 0;
};

}  // namespace syncopate
