// What the keys of a delay, and all other durations of an experiment, may be: finite, so that every mean and every sum
// of delays is finite, and so short that the clock, which ends after 292 years, goes on.
#pragma once

namespace syncopate {

inline constexpr double longest_delay = 1e9;  // in seconds or micro-batches; 1e9 s are 32 years

inline constexpr int most_workers = 1 << 24;  // beyond what one machine simulates

// The unit of what the key `unit` says: seconds, or times of a micro-batch without delay.
inline constexpr const char* of_unit = "its `unit`";

}  // namespace syncopate
