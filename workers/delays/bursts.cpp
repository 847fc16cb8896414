#include "workers/delays/bursts.hpp"

#include <algorithm>
#include <stdexcept>

namespace syncopate {

Bursts::Bursts(double mean_on_steps, double mean_off_steps, std::size_t chains) : memory_(chains) {
  if (!(mean_on_steps >= 1 && mean_off_steps >= 1))
    throw std::invalid_argument("the mean lengths of bursts and pauses must be at least one step");
  share_ = mean_on_steps / (mean_on_steps + mean_off_steps);
  const double stay_on = 1 - 1 / mean_on_steps, turn_on = 1 / mean_off_steps;
  on_below_ = std::min(stay_on, turn_on);
  off_from_ = std::max(stay_on, turn_on);
  flips_ = stay_on < turn_on;
}

bool Bursts::starts_on(RandomStream stream) const {
  stream.step = 0;
  return stream.uniform(0) < share_;
}

// From the step backwards to the last one whose state is known without those before it.
bool Bursts::is_on(RandomStream stream) const {
  const Step::Rep step = stream.step.value();
  const auto chain = static_cast<std::size_t>(stream.worker.value);
  std::atomic<std::int64_t>* const memory = chain < memory_.size() ? &memory_[chain] : nullptr;
  const std::int64_t remembered = memory ? memory->load(std::memory_order_relaxed) : 0;
  bool changed = false;
  const bool always_flips = on_below_ <= 0 && off_from_ >= 1;
  const auto known = [&](Step::Rep at, bool& state) {
    if (remembered > 0 && at == remembered / 2 - 1) return state = remembered % 2, true;
    if (at == 0) return state = starts_on(stream), true;
    if (always_flips) return state = starts_on(stream) != (at % 2 == 1), true;
    stream.step = at;
    const double u = stream.uniform(0);
    state = u < on_below_;
    if (state || u >= off_from_) return true;
    changed ^= flips_;
    return false;
  };
  bool state = false;
  for (Step::Rep at = step; !known(at, state);) --at;
  state ^= changed;
  if (memory) memory->store(2 * (step + 1) + state, std::memory_order_relaxed);
  return state;
}

}  // namespace syncopate
