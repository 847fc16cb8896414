// What the keys of a delay may be: finite, so that every mean and every sum of delays is finite.
#pragma once

namespace syncopate {

inline constexpr double longest_delay = 1e9;  // in seconds or micro-batches; 1e9 s are 32 years

}  // namespace syncopate
