// Waiting that leaves the core to those who compute: MPI's own blocking calls poll without pause,
// which starves the other ranks as soon as there are more of them than cores.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "workers/process/interrupt.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// Nanoseconds of the machine's monotonic clock, the same for all processes of a node.
inline std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

inline void sleep_until_monotonic(std::int64_t at_ns) {
  const timespec at{.tv_sec = at_ns / 1'000'000'000, .tv_nsec = at_ns % 1'000'000'000};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);  // an interrupt ends it early, which callers allow
}

// Calls `done` until it returns true. When every rank has a core of its own, the first millisecond
// is spun through, so that the latency is that of a blocking call; after that, and at once when
// cores are short, it sleeps between calls: a hundredth of what was waited so far, from 20 to 100
// us, so that the sleep costs a wait at most one per cent, and never beyond `until_ns`. Throws Interrupted.
template <typename Done>
void wait_politely(bool cores_suffice, Done done, std::int64_t until_ns = std::numeric_limits<std::int64_t>::max()) {
  constexpr std::int64_t spin_ns = 1'000'000;
  if (done()) return;
  const std::int64_t begin = monotonic_ns();
  while (true) {
    if (done()) return;
    const std::int64_t now = monotonic_ns();
    if (cores_suffice && now - begin < spin_ns) continue;
    if (interrupted()) throw Interrupted();
    const std::int64_t pause = std::clamp<std::int64_t>((now - begin) / 100, 20'000, 100'000);
    sleep_until_monotonic(std::min(now + pause, std::max(now, until_ns)));
  }
}

}  // namespace syncopate
