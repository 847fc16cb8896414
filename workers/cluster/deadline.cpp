#include "workers/cluster/deadline.hpp"

#include <stdexcept>

namespace syncopate {

MicroBatchEnd end_of_micro_batch(Time start, Duration duration, const Deadline& deadline) {
  const Time end = later(start, duration);
  switch (deadline.preempt) {
    case Preempt::discard:
      if (start >= deadline.at) return {start, false};
      return end < deadline.at || deadline.at == never ? MicroBatchEnd{end, true} : MicroBatchEnd{deadline.at, false};
    case Preempt::microbatch:
      if (start > deadline.at) return {start, false};
      return {end, true};
    case Preempt::backward: {
      if (start > deadline.at) return {start, false};
      const Time forward_end = later(start, forward_pass(duration, deadline));
      return forward_end > deadline.at ? MicroBatchEnd{forward_end, false} : MicroBatchEnd{end, true};
    }
    case Preempt::layer:
      if (start >= deadline.at) return {start, false};
      return end <= deadline.at ? MicroBatchEnd{end, true} : MicroBatchEnd{deadline.at, false};
  }
  throw std::logic_error("unknown kind of preemption");
}

Duration forward_pass(Duration duration, const Deadline& deadline) {
  return Duration{static_cast<Duration::rep>(deadline.forward_share * static_cast<double>(duration.count()))};
}

// Equal shares of time and of elements are equal doubles, since both are quotients of whole numbers.
double backward_share(Duration worked, Duration duration, const Deadline& deadline) {
  const Duration forward = forward_pass(duration, deadline);
  if (deadline.preempt != Preempt::layer || deadline.at_message || worked <= forward) return 0;
  return static_cast<double>((worked - forward).count()) / static_cast<double>((duration - forward).count());
}

}  // namespace syncopate
