#include "results/statistics/statistics.hpp"

#include <cmath>
#include <limits>

namespace syncopate {

Statistics statistics(std::span<const double> values) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  if (values.empty()) return {.n = 0, .mean = nan, .std = nan};
  std::size_t n = 0;
  double mean = 0;
  double squares = 0;  // sum of squared distances from the mean so far
  for (const double value : values) {
    ++n;
    const double distance = value - mean;
    mean += distance / static_cast<double>(n);
    squares += distance * (value - mean);
  }
  return {.n = n, .mean = mean, .std = n > 1 ? std::sqrt(squares / static_cast<double>(n - 1)) : 0.0};
}

}  // namespace syncopate
