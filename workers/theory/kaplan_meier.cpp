#include "workers/theory/kaplan_meier.hpp"

#include <algorithm>
#include <utility>

namespace syncopate {

double kaplan_meier_quantile(std::vector<CensoredTime> times, double quantile) {
  std::ranges::sort(times, {}, [](const CensoredTime& time) { return std::pair(time.seconds, time.at_least); });
  constexpr double rounding = 1e-9;
  double longer = 1;
  auto as_long = static_cast<double>(times.size());
  for (const CensoredTime& time : times) {
    if (!time.at_least) longer *= 1 - 1 / as_long;
    if (longer <= 1 - quantile + rounding) return time.seconds;
    --as_long;
  }
  return times.back().seconds * (1 + longer - (1 - quantile));
}

}  // namespace syncopate
