// What lies between a worker's micro-batches where delays are sleeps of its program, as those that the reference code
// of DropCompute injects: the time after a micro-batch, in which its gradient is there already.
// - A sleep follows the micro-batch. A deadline cuts it: what has been computed counts. After a step's last
//   micro-batch the worker sleeps once the collective is over, so that its step's clock does not see it.
// - Trailing work is what the computation leaves running, such as what a device has queued: the next micro-batch and
//   a collective wait for it. It goes on during the sleep, which hides it, and no deadline stops it.
// Source:  Giladi et al. 2023, "DropCompute", reference code (deepspeed-bert), for the sleeps; the trailing work is
//          what its run log needs (results/reference/dropcompute_run.md).
// Units:   seconds outside, integer nanoseconds inside.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "workers/delays/delay_process.hpp"

namespace syncopate {

class Pauses {
 public:
  // trailing_s >= 0 and finite; sleeps: none null; number i of them draws from stream first_stream + i, at most 255.
  // Throws std::invalid_argument otherwise.
  Pauses(std::uint64_t seed, double trailing_s, std::vector<std::shared_ptr<const DelayProcess>> sleeps,
         std::size_t first_stream = 0);

  Duration trailing() const { return trailing_; }

  // The sleep after this micro-batch; a negative draw is none. Throws RunFailure for what a trace does not have.
  Duration sleep(Rank worker, Step step, std::uint32_t index) const;

 private:
  std::uint64_t seed_;
  Duration trailing_;
  std::vector<std::shared_ptr<const DelayProcess>> sleeps_;
  std::size_t first_stream_;
};

}  // namespace syncopate
