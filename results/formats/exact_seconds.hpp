// Nanoseconds as seconds for files.
#pragma once

#include "workers/units/units.hpp"

namespace syncopate {

// Dividing is rounded correctly, unlike multiplying by 1e-9: 70 ms print as 0.07, with no stray last digit.
inline double exact_seconds(Duration duration) { return static_cast<double>(duration.count()) / 1e9; }
inline double exact_seconds(Time time) { return exact_seconds(time.time_since_epoch()); }

}  // namespace syncopate
